/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, for the lane (active sockets) and for recv. s->mtx is held throughout. */
#include <errno.h>
#include <string.h>

#include "erlane_sock.h"

/* Delivering ------------------------------------------------------------- */

static size_t header_size(const sock_t *s)
{
    switch (s->opt[OPT_PACKET]) {
    case PB_1:
        return 1;
    case PB_2:
        return 2;
    case PB_4:
        return 4;
    default:
        return 0;
    }
}

static void count_recv(sock_t *s, size_t len)
{
    double avg = s->recv_cnt ? (double)s->recv_oct / (double)s->recv_cnt : 0;
    double off = (double)len - avg;
    s->recv_cnt++;
    s->recv_oct += len;
    if (len > s->recv_max)
        s->recv_max = len > UINT32_MAX ? UINT32_MAX : (uint32_t)len;
    s->recv_dvi += ((off < 0 ? -off : off) - s->recv_dvi) / (double)s->recv_cnt;
}

/* The bytes of one packet as the options mode and header want them. */
static ERL_NIF_TERM data_term(ErlNifEnv *env, const sock_t *s, const unsigned char *p, size_t n)
{
    if (s->opt[OPT_MODE] == 0)
        return enif_make_string_len(env, (const char *)p, n, ERL_NIF_LATIN1);
    size_t want = (uint32_t)s->opt[OPT_HEADER], h = want > n ? n : want;
    ERL_NIF_TERM t;
    unsigned char *d = enif_make_new_binary(env, n - h, &t);
    memcpy(d, p + h, n - h);
    if (want > n) /* a whole header ends in a binary, even an empty one */
        t = enif_make_list(env, 0);
    while (h > 0)
        t = enif_make_list_cell(env, enif_make_int(env, p[--h]), t);
    return t;
}

static void after_delivery(ctx_t *c, sock_t *s)
{
    s->delivered = true;
    if (s->active == A_ONCE)
        s->active = A_FALSE;
    else if (s->active == A_COUNT && --s->count <= 0) {
        s->active = A_FALSE;
        s->count = 0;
        ErlNifEnv *m = c->env;
        ctx_send(c, &s->owner, enif_make_tuple2(m, am.tcp_passive, sock_term(m, s)));
    }
}

static void deliver_data(ctx_t *c, sock_t *s, ERL_NIF_TERM data, size_t n)
{
    ErlNifEnv *m = c->env;
    ERL_NIF_TERM sock = sock_term(m, s);
    count_recv(s, n);
    ctx_send(c, &s->owner,
             s->opt[OPT_DELIVER] ? enif_make_tuple3(m, am.tcp, sock, data)
                                 : enif_make_tuple2(m, sock, enif_make_tuple2(m, am.data, data)));
    after_delivery(c, s);
}

static void deliver(ctx_t *c, sock_t *s, const unsigned char *p, size_t n)
{
    size_t h = header_size(s);
    deliver_data(c, s, data_term(c->env, s, p + h, n - h), n);
}

/* A packet that Erlang code decoded: sent only if the socket is still active. */
bool io_deliver_term(ctx_t *c, sock_t *s, ERL_NIF_TERM msg)
{
    if (s->active == A_FALSE || s->fd < 0)
        return false;
    ctx_send(c, &s->owner, msg);
    after_delivery(c, s);
    return true;
}

/* Reading ---------------------------------------------------------------- */

/* recv(2) with the rules of edge triggering; 0 is the end of file. */
static ssize_t pull(ctx_t *c, sock_t *s, unsigned char *p, size_t n)
{
    s->readable = false; /* before the call: an edge from now on sets it again */
    ssize_t r = sys_recv(s->fd, p, n);
    count(c->lane, S_RECV, 1);
    if (r == -EAGAIN || r == -EWOULDBLOCK) {
        count(c->lane, S_EAGAIN, 1);
        return -EAGAIN;
    }
    if (r > 0) {
        count(c->lane, S_RECV_BYTES, (uint64_t)r);
        s->readable = (size_t)r == n || s->hup || !s->registered;
    }
    return r;
}

/* The most that one message or recv(S, 0) carries: a lane's buffer, or what the
 * user has set `buffer` to. */
static size_t read_limit(const sock_t *s)
{
    if (!s->opt[OPT_BUFFER_SET] || s->opt[OPT_PACKET] != PB_RAW || s->opt[OPT_BUFFER] >= READ_BUF)
        return READ_BUF;
    return (size_t)s->opt[OPT_BUFFER];
}

/* Large reads in a row go straight into a binary of their own: a copy less. */
static bool wants_direct(const sock_t *s)
{
    return s->big && !s->in.used && s->opt[OPT_PACKET] == PB_RAW && s->opt[OPT_MODE] == 1 &&
           s->opt[OPT_HEADER] == 0 && read_limit(s) == READ_BUF;
}

/* As pull, with *out = the data; *out is not set when nothing was read. */
static ssize_t pull_binary(ctx_t *c, sock_t *s, ERL_NIF_TERM *out)
{
    ErlNifBinary b;
    if (!enif_alloc_binary(READ_BUF, &b))
        return -ENOMEM;
    ssize_t n = pull(c, s, b.data, READ_BUF);
    s->big = n >= BIG_READ;
    if (n <= 0) {
        enif_release_binary(&b);
        return n;
    }
    /* a quarter may stay unused, as in the stock driver; else it is given back */
    if (n < READ_BUF / 4 * 3 && !enif_realloc_binary(&b, (size_t)n)) {
        enif_release_binary(&b);
        return -ENOMEM;
    }
    ERL_NIF_TERM whole = enif_make_binary(c->env, &b);
    *out = b.size == (size_t)n ? whole : enif_make_sub_binary(c->env, whole, 0, (size_t)n);
    return n;
}

/* Delivers whole packets of p[0, n) to the owner; the bytes taken, or -1 on a
 * packet that is too long. *need as in pkt_length for what is left. */
static int64_t deliver_packets(ctx_t *c, sock_t *s, const unsigned char *p, size_t n, size_t *need)
{
    size_t at = 0;
    int budget = PACKETS;
    *need = 0;
    s->cut = false;
    while (s->active != A_FALSE && s->fd >= 0 && at < n) {
        if (budget-- == 0) { /* a flood of small ones: the rest next turn */
            s->cut = true;
            break;
        }
        int64_t len = pkt_length(s, p + at, n - at, need);
        if (len < 0)
            return -1;
        if (len == 0)
            break;
        deliver(c, s, p + at, (size_t)len);
        at += (size_t)len;
        *need = 0;
    }
    return (int64_t)at;
}

/* For packet types that Erlang decodes: one buffer, and a word to the poller. The
 * end waits until Erlang has found no more whole packets (n_need). */
static void active_read_erl(ctx_t *c, sock_t *s, unsigned char *buf, ERL_NIF_TERM *decode)
{
    if (s->rd_closed && !s->in.used) {
        io_read_end(c, s, 0);
        return;
    }
    if (s->readable && !s->ended && !s->rd_closed) {
        ssize_t n = pull(c, s, buf, READ_BUF);
        if (n > 0 && !in_append(&s->in, buf, (size_t)n, s->need))
            n = -ENOMEM;
        if (n <= 0 && n != -EAGAIN) {
            s->ended = true;
            s->end_err = (int)-n;
        }
    }
    size_t have = s->in.end - s->in.start;
    if (s->in.used && have >= s->need && decode)
        *decode = enif_make_list_cell(c->env, enif_make_resource(c->env, s), *decode);
    else if (s->ended)
        io_read_end(c, s, s->end_err);
}

/* One buffer for an active socket; what packets remain incomplete is kept. */
void io_active_read(ctx_t *c, sock_t *s, unsigned char *buf, ERL_NIF_TERM *decode)
{
    size_t need = 0;
    if (s->opt[OPT_PACKET] >= PB_ERLANG) {
        active_read_erl(c, s, buf, decode);
        return;
    }
    if (s->in.used) {
        int64_t took = deliver_packets(c, s, s->in.bin.data + s->in.start,
                                       s->in.end - s->in.start, &need);
        if (took < 0) {
            io_read_end(c, s, EMSGSIZE);
            return;
        }
        if (took > 0)
            in_drop(s, (size_t)took);
        if (s->active == A_FALSE || s->cut)
            return;
    }
    if (s->rd_closed) {
        io_read_end(c, s, 0);
        return;
    }
    ssize_t n = -EAGAIN;
    size_t have = s->in.used ? s->in.end - s->in.start : 0;
    bool direct = need > have && need - have >= READ_BUF / 2;
    if (s->readable && wants_direct(s)) {
        ERL_NIF_TERM data;
        n = pull_binary(c, s, &data);
        if (n > 0) {
            deliver_data(c, s, data, (size_t)n);
            return;
        }
    } else if (s->readable) {
        if (direct && !in_room(&s->in, need - have, need))
            n = -ENOMEM;
        else if (direct)
            n = pull(c, s, s->in.bin.data + s->in.end, need - have);
        else
            n = pull(c, s, buf, read_limit(s));
        s->big = n >= BIG_READ;
    }
    if (n == 0 || (n < 0 && n != -EAGAIN)) {
        io_read_end(c, s, (int)-n);
        return;
    }
    if (n > 0 && direct) {
        s->in.end += (size_t)n;
        n = 0;
        if (s->in.end - s->in.start < need)
            return;
    }
    const unsigned char *p = buf;
    size_t len = n > 0 ? (size_t)n : 0;
    if (s->in.used) {
        if (!in_append(&s->in, buf, len, need)) {
            io_read_end(c, s, ENOMEM);
            return;
        }
        p = s->in.bin.data + s->in.start;
        len = s->in.end - s->in.start;
    }
    int64_t took = deliver_packets(c, s, p, len, &need);
    if (took < 0)
        io_read_end(c, s, EMSGSIZE);
    else if (s->in.used && took > 0)
        in_drop(s, (size_t)took);
    else if (!s->in.used && s->fd >= 0 && !in_append(&s->in, p + took, len - (size_t)took, need))
        io_read_end(c, s, ENOMEM);
}

/* The read that recv made found the end or an error. */
static int take_end(ctx_t *c, sock_t *s, ssize_t n)
{
    bool closed = n == 0 || (n == -ECONNRESET && !s->opt[OPT_SHOW_ECONNRESET]);
    io_read_end(c, s, (int)-n);
    return closed ? -ENOTCONN : (int)n;
}

/* For recv: 1 with *out = the data, 2 with *out = buffered bytes that Erlang
 * must decode, 0 when nothing is there yet, else a negative errno (the socket
 * has been closed if it had to be). len as in gen_tcp:recv/2. */
int io_take(ErlNifEnv *env, sock_t *s, unsigned char *buf, size_t len, ERL_NIF_TERM *out, ctx_t *c)
{
    bool erl = s->opt[OPT_PACKET] >= PB_ERLANG;
    bool raw = s->opt[OPT_PACKET] == PB_RAW;
    size_t pulled = 0;
    for (;;) {
        size_t have = s->in.used ? s->in.end - s->in.start : 0, need = len;
        unsigned char *p = s->in.used ? s->in.bin.data + s->in.start : buf;
        int64_t whole = 0;
        if (have > 0 && raw)
            whole = len == 0 ? (int64_t)have : have >= len ? (int64_t)len : 0;
        else if (have > 0 && !erl)
            whole = pkt_length(s, p, have, &need);
        if (whole < 0) {
            io_read_end(c, s, EMSGSIZE);
            return -EMSGSIZE;
        }
        if (whole > 0) {
            size_t h = header_size(s), w = (size_t)whole;
            count_recv(s, w);
            if (w == have && h == 0 && s->in.start == 0 && s->in.end == s->in.bin.size &&
                s->opt[OPT_MODE] == 1 && s->opt[OPT_HEADER] == 0 && w > 64) {
                s->in.used = false; /* the buffer itself becomes the binary */
                s->in.start = s->in.end = 0;
                s->version++;
                *out = enif_make_binary(env, &s->in.bin);
                return 1;
            }
            *out = data_term(env, s, p + h, w - h);
            in_drop(s, w);
            return 1;
        }
        if (erl && s->in.used && have >= s->need) {
            unsigned char *d = enif_make_new_binary(env, have, out);
            memcpy(d, p, have);
            return 2;
        }
        if (s->ended)
            return take_end(c, s, -s->end_err);
        if (s->rd_closed) {
            io_read_end(c, s, 0);
            return -ENOTCONN;
        }
        if (!s->readable || pulled >= RECV_SLICE)
            break;
        if (len == 0 && wants_direct(s)) {
            ssize_t n = pull_binary(c, s, out);
            if (n > 0) {
                count_recv(s, (size_t)n);
                return 1;
            }
            if (n == -EAGAIN)
                break;
            return take_end(c, s, n);
        }
        if (erl)
            need = s->need;
        size_t ask = raw && len > 0 ? READ_BUF : read_limit(s);
        bool direct = false;
        if (raw && len > 0 && len - have < READ_BUF)
            ask = len - have;
        if (need > have && need - have >= READ_BUF) {
            direct = true;
            ask = need - have;
            if (!in_room(&s->in, ask, need))
                return -ENOMEM;
        }
        ssize_t n = pull(c, s, direct ? s->in.bin.data + s->in.end : buf, ask);
        if (n == -EAGAIN)
            break;
        if (n <= 0 && erl && s->in.used) { /* first what Erlang still finds in there */
            s->ended = true;
            s->end_err = (int)-n;
            continue;
        }
        if (n <= 0)
            return take_end(c, s, n);
        pulled += (size_t)n;
        s->big = n >= BIG_READ;
        if (direct) {
            s->in.end += (size_t)n;
            continue;
        }
        if (raw && have == 0 && (len == 0 || (size_t)n == len)) {
            count_recv(s, (size_t)n);
            *out = data_term(env, s, buf, (size_t)n);
            return 1;
        }
        if (!in_append(&s->in, buf, (size_t)n, need))
            return -ENOMEM;
    }
    return 0;
}
