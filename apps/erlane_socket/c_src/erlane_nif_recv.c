/* SPDX-License-Identifier: Apache-2.0 */
/* Receiving and active mode. */
#include <errno.h>
#include <string.h>

#include "erlane_glue.h"

/* Receiving -------------------------------------------------------------- */

/* recv(Ref, Length, 0 | Ticket) -> {ok, Data} | {follow, Data} | {decode, Bin, Version, Type,
 * HttpHeader} | {wait, Ticket} | {error, _} */
NIF(n_recv)
{
    unsigned char buf[READ_BUF];
    sock_t *s;
    ErlNifUInt64 len, ticket;
    ErlNifPid self;
    if (argc != 3 || !get_sock(env, argv[0], &s) || !enif_get_uint64(env, argv[1], &len) ||
        !enif_get_uint64(env, argv[2], &ticket) || !get_pid(env, &self))
        BADARG;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t, data;
    pthread_mutex_lock(&s->mtx);
    if (s->state == ST_CLOSED) {
        bool kept = io_kept(&c, s);
        t = error(env, !kept           ? am.closed
                       : !s->gone_recv ? am.enotconn
                       : s->resetby    ? errno_term(env, ECONNRESET)
                                       : am.closed);
        if (s->gone_recv)
            s->resetby = s->gone_recv = s->gone_send = false;
    } else if (s->state != ST_CONNECTED) {
        t = error(env, am.enotconn);
    } else if (s->active != A_FALSE || s->relay || (s->opt[OPT_PACKET] != PB_RAW && len > 0)) {
        t = error(env, am.einval);
    } else if (len > MAX_RECV) {
        t = error(env, am.enomem);
    } else if (s->reader_ticket && s->reader_ticket != ticket &&
               enif_is_process_alive(env, &s->reader)) {
        t = error(env, am.ealready);
    } else {
        /* no longer waiting: what ends the socket now is this call's answer */
        uint64_t mine = s->reader_ticket, before = s->recv_oct;
        s->reader_ticket = 0;
        int r = io_take(env, s, buf, (size_t)len, &data, &c);
        pay(env, s->recv_oct - before);
        int reg = r == 0 || r == 2 ? sock_register(s) : 0;
        if (r == 1 && wants_to_follow(env, s, c.lane)) {
            t = enif_make_tuple2(env, am.follow, data);
        } else if (r == 1) {
            t = ok(env, data);
        } else if (r < 0) {
            t = r == -ENOTCONN ? error(env, am.closed) : posix(env, r);
        } else if (reg < 0) {
            t = posix(env, reg);
        } else {
            if (ticket == 0 || mine != ticket)
                ticket = ++s->ticket;
            s->reader = self;
            s->reader_ticket = ticket;
            s->told = false;
            if (r == 0 && s->readable) /* cut off at its slice */
                lane_push(&c, s->lane, s);
            if (r == 2)
                t = enif_make_tuple6(env, am.decode, enif_make_uint64(env, ticket), data,
                                     enif_make_uint(env, s->version),
                                     enif_make_int(env, s->opt[OPT_PACKET]),
                                     s->http_hdr ? am.true_ : am.false_);
            else
                t = enif_make_tuple2(env, am.wait, enif_make_uint64(env, ticket));
        }
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* peek(Ref) -> {Bin, Version, Type, HttpHeader} | none: for the poller. */
NIF(n_peek)
{
    sock_t *s;
    ERL_NIF_TERM t = am.gone;
    if (argc != 1 || !get_sock(env, argv[0], &s))
        BADARG;
    pthread_mutex_lock(&s->mtx);
    if (s->fd >= 0 && s->in.used && s->active != A_FALSE) {
        size_t n = s->in.end - s->in.start;
        ERL_NIF_TERM b;
        memcpy(enif_make_new_binary(env, n, &b), s->in.bin.data + s->in.start, n);
        t = enif_make_tuple4(env, b, enif_make_uint(env, s->version),
                             enif_make_int(env, s->opt[OPT_PACKET]),
                             s->http_hdr ? am.true_ : am.false_);
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* take(Ref, Version, N, HttpHeader, Msg | none) -> {ok, Version} | stop | gone: N
 * decoded bytes leave the buffer if nobody took bytes since Version; Msg goes
 * to the owner, and then the socket must be active; stop if it is no longer. */
NIF(n_take)
{
    sock_t *s;
    unsigned version, n;
    if (argc != 5 || !get_sock(env, argv[0], &s) || !enif_get_uint(env, argv[1], &version) ||
        !enif_get_uint(env, argv[2], &n))
        BADARG;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.gone;
    pthread_mutex_lock(&s->mtx);
    if (s->fd >= 0 && s->version == version && s->in.used && n > 0 &&
        n <= s->in.end - s->in.start &&
        (argv[4] == am.nil || io_deliver_term(&c, s, argv[4]))) {
        s->recv_cnt++;
        s->recv_oct += n;
        if (n > s->recv_max)
            s->recv_max = n;
        s->http_hdr = argv[3] == am.true_;
        in_drop(s, n);
        if (argv[4] == am.nil)
            s->reader_ticket = 0;
        t = argv[4] != am.nil && s->active == A_FALSE ? am.stop
                                                      : ok(env, enif_make_uint(env, s->version));
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* What Erlang says of the bytes it looked at: still true? */
static bool still(const sock_t *s, unsigned version, bool active)
{
    return s->state == ST_CONNECTED && !s->relay && s->version == version &&
           (s->active != A_FALSE) == active;
}

/* need(Ref, Version, Size, Active) -> ok: no whole packet in there; with Size
 * bytes (0: with any more) there may be one. If no more can come, that was the
 * end. Active: the poller asks, else a process in recv. */
NIF(n_need)
{
    sock_t *s;
    unsigned version;
    ErlNifUInt64 size;
    if (argc != 4 || !get_sock(env, argv[0], &s) || !enif_get_uint(env, argv[1], &version) ||
        !enif_get_uint64(env, argv[2], &size))
        BADARG;
    bool active = argv[3] == am.true_;
    ctx_t c = ctx(env);
    pthread_mutex_lock(&s->mtx);
    if (still(s, version, active)) {
        size_t have = s->in.end - s->in.start;
        s->need = size > have ? (size_t)size : have + 1;
        if (active && (s->ended || s->readable)) /* more bytes, or the end */
            lane_push(&c, s->lane, s);
    }
    pthread_mutex_unlock(&s->mtx);
    return am.ok;
}

/* fail(Ref, Version, Active) -> ok: a packet that is too long, or none at all. */
NIF(n_fail)
{
    sock_t *s;
    unsigned version;
    if (argc != 3 || !get_sock(env, argv[0], &s) || !enif_get_uint(env, argv[1], &version))
        BADARG;
    ctx_t c = ctx(env);
    pthread_mutex_lock(&s->mtx);
    if (still(s, version, argv[2] == am.true_)) {
        s->reader_ticket = 0;
        io_read_end(&c, s, EMSGSIZE);
    }
    pthread_mutex_unlock(&s->mtx);
    return am.ok;
}

NIF(n_unrecv)
{
    sock_t *s;
    ErlNifBinary b;
    if (argc != 2 || !get_sock(env, argv[0], &s) ||
        !enif_inspect_iolist_as_binary(env, argv[1], &b))
        BADARG;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.ok;
    pthread_mutex_lock(&s->mtx);
    if (s->state != ST_CONNECTED || s->relay)
        t = error(env, s->state == ST_CLOSED && !io_kept(&c, s) ? am.closed : am.enotconn);
    else if (!in_push_front(&s->in, b.data, b.size))
        t = error(env, am.enomem);
    else {
        s->version++;
        s->need = 0;
        if (s->active != A_FALSE)
            lane_push(&c, s->lane, s);
        else
            sock_notify_reader(&c, s, am.ready);
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* active(Ref, true | false | once | N) -> ok | fetch | follow |
 * elsewhere | {error, einval}. fetch: a packet was sent to the caller by itself;
 * it must take its messages in before others send more. elsewhere: the caller
 * does not run where the socket is, which may be because nobody can. */
NIF(n_set_active)
{
    unsigned char buf[READ_BUF];
    sock_t *s;
    int n = 0;
    ErlNifPid self;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !get_pid(env, &self))
        BADARG;
    int to = argv[1] == am.true_    ? A_TRUE
             : argv[1] == am.false_ ? A_FALSE
             : argv[1] == am.once   ? A_ONCE
                                    : A_COUNT;
    if (to == A_COUNT && !enif_get_int(env, argv[1], &n))
        BADARG;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.ok;
    pthread_mutex_lock(&s->mtx);
    int64_t sum = (int64_t)(s->active == A_COUNT ? s->count : 0) + n;
    bool kept = s->state == ST_CLOSED && io_kept(&c, s);
    if ((s->state == ST_CLOSED && !kept) || s->relay || sum > INT16_MAX || sum < INT16_MIN) {
        t = error(env, am.einval);
        goto out;
    }
    s->active = (uint8_t)to;
    s->count = 0;
    if (to == A_COUNT) {
        s->count = (int16_t)(sum > 0 ? sum : 0);
        if (sum <= 0) {
            s->active = A_FALSE;
            ErlNifEnv *m = env;
            s->delivered = true;
            if (s->owned)
                ctx_send(&c, &s->owner, enif_make_tuple2(m, am.tcp_passive, sock_term(m, s)));
        }
    }
    if (kept && s->active != A_FALSE)
        io_ended(&c, s);
    if (s->active == A_FALSE || s->state != ST_CONNECTED || s->moving)
        goto out;
    if (s->rd_closed) {
        if (s->in.used || !s->told_closed || s->opt[OPT_EXIT_ON_CLOSE])
            lane_push(&c, s->lane, s);
    } else if (!s->registered) {
        /* A fresh socket: its first bytes are often here already, and then
         * the poll set need not hear of it. Nothing was sent before, so a
         * packet from this process cannot overtake one from the lane. */
        bool own = s->owned && enif_compare_pids(&self, &s->owner) == 0;
        if (own && s->active == A_ONCE && s->opt[OPT_PACKET] < PB_ERLANG) {
            io_active_read(&c, s, buf, NULL);
            t = am.ready;
        }
        if (s->fd >= 0 && s->active != A_FALSE) {
            int r = sock_register(s);
            if (r < 0)
                io_read_end(&c, s, -r);
            else if (s->in.used)
                lane_push(&c, s->lane, s);
        }
    } else if (s->readable || s->in.used || s->ended) {
        lane_push(&c, s->lane, s);
    }
    if (t == am.ok && wants_to_follow(env, s, c.lane))
        t = am.follow;
    else if (t == am.ok && s->foreign)
        t = am.elsewhere;
out:
    pthread_mutex_unlock(&s->mtx);
    return t;
}
