/* SPDX-License-Identifier: Apache-2.0 */
/* One payload, or one each, to many sockets. Each is written to as by send/2,
 * under its own mutex: frames of several writers never mix. Unlike send/2
 * nobody waits: a socket whose kernel buffer is full says so in the answer. */
#include <errno.h>

#include "erlane_glue.h"

enum { FAN_NS = 500 * 1000,    /* then the rest is left for the next call */
       FAN_LOOK = 8,           /* sockets between two looks at the clock */
       FAN_LOOK_BYTES = 65536, /* and bytes */
       SLICE_NS = 1000 * 1000 };

/* What is written: one binary, or the binaries of a list. */
typedef struct {
    ERL_NIF_TERM data;
    ErlNifBinary bin;
    bool one;
    size_t len;
} payload_t;

static bool get_payload(ErlNifEnv *env, ERL_NIF_TERM t, payload_t *p)
{
    int elems;
    bool bad = false;
    p->data = t;
    p->one = enif_inspect_binary(env, t, &p->bin);
    p->len = p->one ? p->bin.size : send_size(env, t, &elems, &bad);
    return !bad;
}

/* {'$inet', Module, Ref} */
static bool get_inet(ErlNifEnv *env, ERL_NIF_TERM t, sock_t **s)
{
    const ERL_NIF_TERM *e;
    int n;
    return enif_get_tuple(env, t, &n, &e) && n == 3 && e[0] == am.inet && get_sock(env, e[2], s);
}

/* Why this socket is not written to; shut down counts as closed. */
static ERL_NIF_TERM gone(const sock_t *s)
{
    if (s->relay)
        return am.einval;
    return s->state == ST_CLOSED || s->state == ST_CONNECTED ? am.closed : am.enotconn;
}

/* {full, Queued, Ticket}: Ticket ends when there is room, 0 without notice. */
static ERL_NIF_TERM full(ErlNifEnv *env, sock_t *s, const ErlNifPid *notify)
{
    waiter_t *w = notify ? sock_wait(s, notify) : NULL;
    if (w)
        w->room = true;
    return enif_make_tuple3(env, am.full, enif_make_uint64(env, sock_queued(s)),
                            enif_make_uint64(env, w ? w->ticket : 0));
}

/* Writes to one socket, whose mutex is held. False when the kernel took all of
 * it, else *odd is what the answer says of this socket. */
static bool fan_one(ctx_t *c, sock_t *s, const payload_t *p, uint64_t limit,
                    const ErlNifPid *notify, ERL_NIF_TERM *odd)
{
    ErlNifEnv *env = c->env;
    unsigned char h[4];
    if (s->state != ST_CONNECTED || s->relay || s->pend_shut || s->wr_shut) {
        *odd = error(env, gone(s));
        return true;
    }
    int hn = send_header(s, p->len, h);
    if (hn < 0) {
        *odd = posix(env, hn);
        return true;
    }
    size_t total = p->len + (size_t)hn, queued = sock_queued(s), asked = 0;
    bool later = queued > 0 || s->sendfile || s->opt[OPT_DELAY_SEND];
    if (later && queued > limit) {
        *odd = full(env, s, notify);
        return true;
    }
    if (p->len == 0)
        return false; /* only asked, and told of no header either */
    send_count(s, total);
    ssize_t n = 0;
    if (!later) {
        n = send_now(env, s, c->lane, h, (size_t)hn, p->data, p->one ? &p->bin : NULL, false,
                     &asked);
        if (n < 0) {
            io_send_end(c, s, (int)-n);
            *odd = error(env, am.closed);
            return true;
        }
        if ((size_t)n == total)
            return false;
    }
    ERL_NIF_TERM list = p->one ? enif_make_list1(env, p->data) : p->data;
    if (!send_queue(env, s, h, (size_t)hn, list, (size_t)n)) {
        sock_close(c, s, am.normal); /* half a frame may be out */
        *odd = error(env, am.enomem);
        return true;
    }
    int r = later ? 0 : sock_register(s);
    if (r < 0) {
        io_send_end(c, s, -r);
        *odd = error(env, am.closed);
        return true;
    }
    if (later ? queued == 0 && !s->sendfile : (size_t)n == asked)
        lane_push(c, s->lane, s); /* delay_send, or our slice was at its end */
    *odd = enif_make_tuple2(env, am.queued, enif_make_uint64(env, sock_queued(s)));
    return true;
}

/* One entry of the list: true when *odd is to be told of *socket. */
static bool fan_entry(ctx_t *c, ERL_NIF_TERM entry, const payload_t *shared, uint64_t limit,
                      const ErlNifPid *notify, size_t *bytes, ERL_NIF_TERM *socket,
                      ERL_NIF_TERM *odd)
{
    const ERL_NIF_TERM *e;
    payload_t own;
    sock_t *s;
    int n;
    *socket = entry;
    *odd = error(c->env, am.einval);
    if (enif_get_tuple(c->env, entry, &n, &e) && n == 2) {
        *socket = e[0];
        if (!get_payload(c->env, e[1], &own))
            return true;
        shared = &own;
    }
    if (!get_inet(c->env, *socket, &s))
        return true;
    *bytes += shared->len;
    pthread_mutex_lock(&s->mtx);
    bool told = fan_one(c, s, shared, limit, notify, odd);
    pthread_mutex_unlock(&s->mtx);
    return told;
}

/* send_each([Socket | {Socket, Data}], Data, Limit, Notify) -> {Rest, [{Socket, Odd}]}
 * Odd: {queued, Bytes} | {full, Bytes, Ticket} | {error, _}. Data is a binary or a list of
 * at most MAX_VEC binaries. Rest is what the time of a call was not enough for.
 * A bad entry has einval for its answer: those before it have been written to. */
NIF(n_send_each)
{
    ErlNifUInt64 limit;
    ErlNifPid self;
    payload_t shared;
    ERL_NIF_TERM head, socket, odd, rest = argv[0], odds = enif_make_list(env, 0);
    if (argc != 4 || !enif_is_list(env, rest) || !get_payload(env, argv[1], &shared) ||
        !enif_get_uint64(env, argv[2], &limit) || (argv[3] != am.true_ && argv[3] != am.false_) ||
        !get_pid(env, &self))
        BADARG;
    ctx_t c = ctx(env);
    int64_t t0 = sys_now_ns();
    size_t bytes = 0;
    for (int done = 1; enif_get_list_cell(env, rest, &head, &rest); done++) {
        if (fan_entry(&c, head, &shared, limit, argv[3] == am.true_ ? &self : NULL, &bytes,
                      &socket, &odd))
            odds = enif_make_list_cell(env, enif_make_tuple2(env, socket, odd), odds);
        if (done % FAN_LOOK == 0 || bytes >= FAN_LOOK_BYTES) {
            bytes = 0;
            if (sys_now_ns() - t0 > FAN_NS)
                break;
        }
    }
    int64_t used = (sys_now_ns() - t0) * 100 / SLICE_NS;
    enif_consume_timeslice(env, used < 1 ? 1 : used > 100 ? 100 : (int)used);
    return enif_make_tuple2(env, rest, odds);
}
