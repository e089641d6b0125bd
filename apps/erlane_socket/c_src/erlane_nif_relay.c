/* SPDX-License-Identifier: Apache-2.0 */
/* The start and end of relays. */
#include <errno.h>
#include <string.h>

#include "erlane_glue.h"

/* Relay ------------------------------------------------------------------ */

/* Is this socket fit for a relay? 0 or an errno; EAGAIN while output waits. */
static int relay_fit(const sock_t *s, const ErlNifPid *self)
{
    if (s->state != ST_CONNECTED || s->rd_closed)
        return ENOTCONN;
    if (s->relay || s->active != A_FALSE || s->reader_ticket || s->sendfile || s->moving)
        return EINVAL;
    if (!s->owned || enif_compare_pids(self, &s->owner) != 0)
        return EPERM;
    return sock_queued(s) > 0 ? EAGAIN : 0;
}

/* What the caller had read, then what the socket had: goes out first. */
static bool relay_first(relay_t *r, int i, const ErlNifBinary *first)
{
    inbuf_t *in = &r->s[i]->in;
    size_t have = in->used ? in->end - in->start : 0, n = first->size + have;
    if (n == 0)
        return true;
    unsigned char *d = enif_alloc(n);
    if (d == NULL)
        return false;
    memcpy(d, first->data, first->size);
    if (have)
        memcpy(d + first->size, in->bin.data + in->start, have);
    r->pend[i].data = d;
    r->pend[i].len = n;
    in_free(in);
    return true;
}

/* relay(A, B, ToB, ToA, IdleMs | -1, HalfMs | -1, HalfClose) ->
 * {ok, Relay} | eagain | {error, _}. eagain: call again a little later. */
NIF(n_relay)
{
    sock_t *s[2];
    ErlNifBinary first[2];
    ErlNifSInt64 idle, half;
    ErlNifPid self;
    if (argc != 7 || !get_sock(env, argv[0], &s[0]) || !get_sock(env, argv[1], &s[1]) ||
        s[0] == s[1] || !enif_inspect_binary(env, argv[2], &first[0]) ||
        !enif_inspect_binary(env, argv[3], &first[1]) || !enif_get_int64(env, argv[4], &idle) ||
        !enif_get_int64(env, argv[5], &half) || !get_pid(env, &self))
        BADARG;
    ctx_t c = ctx(env);
    /* Never wait for a second socket's mutex: see the lock order. */
    pthread_mutex_lock(&s[0]->mtx);
    if (pthread_mutex_trylock(&s[1]->mtx) != 0) {
        pthread_mutex_unlock(&s[0]->mtx);
        return am.eagain;
    }
    ERL_NIF_TERM t;
    relay_t *r = NULL;
    int e = relay_fit(s[0], &self);
    e = e ? e : relay_fit(s[1], &self);
    if (e == 0 && (r = relay_new()) == NULL)
        e = ENOMEM;
    if (e == 0) {
        r->s[0] = s[0];
        r->s[1] = s[1];
        r->pid = self;
        /* a thousand years are for ever, and no sum of times overflows */
        const ErlNifSInt64 longest = INT64_C(31536000000000);
        r->idle_ms = idle < longest ? idle : longest;
        r->half_ms = half < longest ? half : longest;
        r->half_close = argv[6] == am.true_;
        e = -sock_register(s[0]);
        r->lane = s[0]->lane;
        if (e == 0 && s[1]->lane != r->lane) {
            if (s[1]->registered && lane_leave(s[1]->lane, s[1]) != 0)
                e = ENOMEM;
            else
                change_lane(s[1], r->lane);
        }
        e = e ? e : -sock_register(s[1]);
        if (e == 0 && (!relay_first(r, 0, &first[0]) || !relay_first(r, 1, &first[1])))
            e = ENOMEM;
        if (e == 0 && enif_monitor_process(env, r, &self, &r->mon) != 0)
            e = EINVAL;
    }
    if (e == 0) {
        count_shared(r->lane, S_RELAYS, 1);
        relay_start(&c, r);
        t = ok(env, enif_make_resource(env, r));
    } else {
        if (r)
            r->s[0] = r->s[1] = NULL;
        t = e == EAGAIN    ? am.eagain
            : e == EPERM   ? error(env, am.not_owner)
            : e == ENOTCONN && (s[0]->fd < 0 || s[1]->fd < 0) ? error(env, am.closed)
                                                               : posix(env, e);
    }
    pthread_mutex_unlock(&s[1]->mtx);
    pthread_mutex_unlock(&s[0]->mtx);
    if (r)
        enif_release_resource(r);
    return t;
}

/* relay_info(Relay) -> {ToB, ToA, IdleMs} | undefined */
NIF(n_relay_info)
{
    relay_t *r;
    if (argc != 1 || !enif_get_resource(env, argv[0], relay_type, (void **)&r))
        BADARG;
    pthread_mutex_lock(&r->mtx);
    bool on = r->s[0] != NULL;
    pthread_mutex_unlock(&r->mtx);
    if (!on)
        return am.undefined;
    return enif_make_tuple3(env, enif_make_uint64(env, atomic_load(&r->bytes[0])),
                            enif_make_uint64(env, atomic_load(&r->bytes[1])),
                            enif_make_int64(env, sys_now_ms() - atomic_load(&r->last_ms)));
}

/* relay_stop(Relay, 1 | 2) */
NIF(n_relay_stop)
{
    relay_t *r;
    int how;
    if (argc != 2 || !enif_get_resource(env, argv[0], relay_type, (void **)&r) ||
        !enif_get_int(env, argv[1], &how) || how < 1 || how > 2)
        BADARG;
    ctx_t c = ctx(env);
    relay_ask_stop(&c, r, how);
    return am.ok;
}

/* faults(N): fault injection, in builds made for it; else {error, enotsup}. */
NIF(n_faults)
{
    unsigned n;
    if (argc != 1 || !enif_get_uint(env, argv[0], &n))
        BADARG;
#ifdef ERLANE_FAULTS
    sys_faults(n);
    return am.ok;
#else
    return posix(env, ENOTSUP);
#endif
}
