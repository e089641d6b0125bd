/* SPDX-License-Identifier: Apache-2.0 */
/* Sending, and sendfile. */
#include <errno.h>
#include <string.h>

#include "erlane_glue.h"

/* Sending ---------------------------------------------------------------- */

int send_header(const sock_t *s, size_t len, unsigned char *h)
{
    int n = s->opt[OPT_PACKET] == PB_1   ? 1
            : s->opt[OPT_PACKET] == PB_2 ? 2
            : s->opt[OPT_PACKET] == PB_4 ? 4
                                         : 0;
    uint64_t max = n == 1 ? 0xff : n == 2 ? 0xffff : 0xffffffff;
    if (n > 0 && len > max)
        return -EMSGSIZE;
    for (int i = 0; i < n; i++)
        h[i] = (unsigned char)(len >> 8 * (n - 1 - i));
    return n;
}

bool send_queue(ErlNifEnv *env, sock_t *s, const unsigned char *h, size_t hn,
                ERL_NIF_TERM data, size_t skip)
{
    if (s->q == NULL && (s->q = enif_ioq_create(ERL_NIF_IOQ_NORMAL)) == NULL)
        return false;
    if (hn > skip) {
        ErlNifBinary b;
        if (!enif_alloc_binary(hn - skip, &b))
            return false;
        memcpy(b.data, h + skip, hn - skip);
        if (!enif_ioq_enq_binary(s->q, &b, 0))
            return false;
        skip = 0;
    } else {
        skip -= hn;
    }
    ErlNifIOVec vec, *v = &vec;
    ERL_NIF_TERM tail;
    if (!enif_inspect_iovec(env, MAX_VEC, data, &tail, &v))
        return false;
    return v->size == skip || enif_ioq_enqv(s->q, v, skip);
}

size_t send_size(ErlNifEnv *env, ERL_NIF_TERM list, int *elems, bool *bad)
{
    size_t n = 0;
    ERL_NIF_TERM head;
    ErlNifBinary b;
    *elems = 0;
    *bad = false;
    while (enif_get_list_cell(env, list, &head, &list)) {
        if (++*elems > MAX_VEC || !enif_inspect_binary(env, head, &b)) {
            *bad = true;
            return 0;
        }
        n += b.size;
    }
    *bad = !enif_is_empty_list(env, list);
    return n;
}

/* Writes at once what the kernel takes; returns the bytes taken or -errno. */
ssize_t send_now(ErlNifEnv *env, sock_t *s, lane_t *here, const unsigned char *h, size_t hn,
                 ERL_NIF_TERM data, const ErlNifBinary *one, bool more, size_t *asked)
{
    struct iovec iov[MAX_IOV];
    int k = 0;
    size_t size = one && one->size > SEND_SLICE ? SEND_SLICE : one ? one->size : 0;
    ssize_t r;
    count(here, S_SEND, 1);
    *asked = hn + size;
    if (one && hn == 0 && !more) {
        r = sys_send(s->fd, one->data, size);
    } else {
        ERL_NIF_TERM head, tail = data;
        ErlNifBinary b;
        if (hn > 0)
            iov[k++] = (struct iovec){(void *)(uintptr_t)h, hn};
        if (one)
            iov[k++] = (struct iovec){one->data, size};
        else
            while (k < MAX_IOV && *asked < SEND_SLICE &&
                   enif_get_list_cell(env, tail, &head, &tail)) {
                enif_inspect_binary(env, head, &b);
                size = b.size < SEND_SLICE ? b.size : SEND_SLICE;
                iov[k++] = (struct iovec){b.data, size};
                *asked += size;
                if (size < b.size)
                    break; /* what follows would leave a gap */
            }
        r = more ? sys_sendv_more(s->fd, iov, k) : sys_sendv(s->fd, iov, k);
    }
    if (r == -EAGAIN || r == -EWOULDBLOCK) {
        count(here, S_EAGAIN, 1);
        return 0;
    }
    if (r > 0)
        count(here, S_SEND_BYTES, (uint64_t)r);
    return r;
}

void send_count(sock_t *s, size_t n)
{
    s->send_cnt++;
    s->send_oct += n;
    if (n > s->send_max)
        s->send_max = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* All is sent: the next bytes come as a message, where that takes no more than a
 * flag. Else the caller sets active itself. */
static bool armed(ctx_t *c, sock_t *s)
{
    if (!s->registered || s->moving || s->foreign || s->rd_closed || s->fd < 0)
        return false;
    s->active = A_ONCE;
    s->count = 0;
    if (s->readable || s->in.used || s->ended)
        lane_push(c, s->lane, s);
    return true;
}

/* send(Ref, Binary | [Binary], false | more | once) -> ok | armed | follow |
 * {wait, Ticket, TimeoutMs} |
 * {error, _} | too_long (more than MAX_VEC binaries: flatten and call again) */
NIF(n_send)
{
    sock_t *s;
    ErlNifBinary bin;
    ErlNifPid self;
    int elems = 1;
    bool bad = false;
    if (argc != 3 || !get_sock(env, argv[0], &s) || !get_pid(env, &self) ||
        (argv[2] != am.false_ && argv[2] != am.more && argv[2] != am.once))
        BADARG;
    bool one = enif_inspect_binary(env, argv[1], &bin);
    size_t len = one ? bin.size : send_size(env, argv[1], &elems, &bad);
    if (bad)
        return elems > MAX_VEC ? am.too_long : error(env, am.einval);
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.ok;
    unsigned char h[4];
    pthread_mutex_lock(&s->mtx);
    int hn = send_header(s, len, h);
    if (s->state != ST_CONNECTED || s->relay || hn < 0) {
        bool closed = s->state == ST_CLOSED, kept = closed && io_kept(&c, s);
        t = error(env, closed && (!kept || s->gone_send)
                           ? (kept && s->resetby ? errno_term(env, ECONNRESET) : am.closed)
                       : closed   ? am.enotconn
                       : hn < 0   ? errno_term(env, EMSGSIZE)
                       : s->relay ? am.einval
                                  : am.enotconn);
        s->gone_send = false;
        goto out;
    }
    if (s->pend_shut) {
        s->shut_queued = true; /* no reset either */
        io_send_end(&c, s, EPIPE);
        t = error(env, am.closed);
        goto out;
    }
    size_t total = len + (size_t)hn, queued = sock_queued(s);
    ssize_t n = 0;
    size_t asked = 0;
    send_count(s, total);
    if (total == 0 && queued == 0 && !s->sendfile)
        goto out;
    bool later = queued > 0 || s->sendfile || s->opt[OPT_DELAY_SEND];
    if (!later) {
        n = send_now(env, s, c.lane, h, (size_t)hn, argv[1], one ? &bin : NULL,
                     argv[2] == am.more, &asked);
        if (n < 0) {
            bool reset = n == -ECONNRESET || (n == -EPIPE && !s->shut_queued);
            bool show = reset && s->opt[OPT_SHOW_ECONNRESET];
            io_send_end(&c, s, (int)-n);
            t = error(env, show ? errno_term(env, ECONNRESET) : am.closed);
            goto out;
        }
        pay(env, (size_t)n);
        if ((size_t)n == total) {
            if (wants_to_follow(env, s, c.lane))
                t = am.follow;
            else if (argv[2] == am.once && armed(&c, s))
                t = am.armed;
            goto out;
        }
    }
    ERL_NIF_TERM list = one ? enif_make_list1(env, argv[1]) : argv[1];
    if (!send_queue(env, s, h, (size_t)hn, list, (size_t)n)) {
        /* half a packet may be out: the stream cannot go on */
        sock_close(&c, s, am.normal);
        t = error(env, am.enomem);
        goto out;
    }
    if (!later) {
        int r = sock_register(s);
        if (r < 0) {
            io_send_end(&c, s, -r);
            t = error(env, am.closed);
        } else if ((size_t)n == asked) {
            lane_push(&c, s->lane, s); /* our slice was at its end, not the kernel */
        }
    } else {
        if (s->opt[OPT_DELAY_SEND] && queued == 0 && !s->sendfile)
            lane_push(&c, s->lane, s); /* goes out at the end of the lane's turn */
        if (sock_queued(s) >= (size_t)s->opt[OPT_HIGH_WATERMARK] &&
            (queued > 0 || s->sendfile)) {
            if (s->opt[OPT_SEND_TIMEOUT] == 0) {
                t = error(env, am.timeout);
                goto out;
            }
            waiter_t *w = sock_wait(s, &self);
            if (w)
                t = enif_make_tuple3(env, am.wait, enif_make_uint64(env, w->ticket),
                                     enif_make_int(env, s->opt[OPT_SEND_TIMEOUT]));
        }
    }
out:
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* sendfile_begin(Ref, Fd) -> ok: from now on sends queue up behind it. The
 * socket keeps a duplicate of Fd, so closing the file meanwhile is harmless. */
NIF(n_sendfile_begin)
{
    sock_t *s;
    int file, d = -1, r;
    ErlNifPid self;
    ERL_NIF_TERM t = am.ok;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !enif_get_int(env, argv[1], &file) ||
        !get_pid(env, &self))
        BADARG;
    ctx_t c = ctx(env);
    pthread_mutex_lock(&s->mtx);
    if (s->state == ST_CLOSED && !io_kept(&c, s))
        t = error(env, am.einval);
    else if (!s->owned || enif_compare_pids(&self, &s->owner) != 0)
        t = error(env, am.not_owner);
    else if (s->state != ST_CONNECTED || s->relay)
        t = error(env, am.enotconn);
    else if (s->sendfile)
        t = error(env, am.einval);
    else if ((d = sys_dup(file)) < 0)
        t = posix(env, d);
    else if ((r = sock_register(s)) < 0) {
        sys_close(d);
        t = posix(env, r);
    } else {
        s->sendfile = true;
        s->file = d;
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

static ERL_NIF_TERM wait_term(ErlNifEnv *env, waiter_t *w)
{
    if (w)
        w->file = true;
    return w ? enif_make_tuple2(env, am.wait, enif_make_uint64(env, w->ticket))
             : error(env, am.enomem);
}

/* sendfile_step(Ref, Offset, Count) -> {ok, N} (0: end of the file) | again |
 * {wait, Ticket} | {error, _}. Dirty: the disk may block. */
NIF(n_sendfile_step)
{
    sock_t *s;
    ErlNifSInt64 off, cnt;
    ErlNifPid self;
    ERL_NIF_TERM t = am.ok;
    if (argc != 3 || !get_sock(env, argv[0], &s) || !enif_get_int64(env, argv[1], &off) ||
        !enif_get_int64(env, argv[2], &cnt) || off < 0 || cnt < 0 || !get_pid(env, &self))
        BADARG;
    ctx_t c = {.env = env};
    int fd = -1, file = -1;
    pthread_mutex_lock(&s->mtx);
    if (s->state == ST_CONNECTED && s->sendfile && sock_queued(s) > 0 && !s->file_began) {
        /* what was queued before goes first */
        io_flush(&c, s);
        if (s->state == ST_CONNECTED)
            t = sock_queued(s) > 0 ? wait_term(env, sock_wait(s, &self)) : am.more;
        else
            t = error(env, am.closed);
    } else if (s->state != ST_CONNECTED || !s->sendfile) {
        t = error(env, am.closed);
    } else if ((fd = sys_dup(s->fd)) < 0 || (file = sys_dup(s->file)) < 0) {
        t = posix(env, fd < 0 ? fd : file);
    } else {
        s->file_began = true;
        s->out_edge = false;
    }
    pthread_mutex_unlock(&s->mtx);
    if (fd >= 0 && file >= 0) {
        /* On duplicates and without the mutex: a close is not held up. */
        off_t o = off;
        ssize_t n = sys_sendfile(fd, file, &o, cnt > 4 * SEND_SLICE ? 4 * SEND_SLICE : (size_t)cnt);
        pthread_mutex_lock(&s->mtx);
        if (s->state != ST_CONNECTED) {
            t = error(env, am.closed);
        } else if (n >= 0) {
            s->send_oct += (uint64_t)n;
            t = ok(env, enif_make_int64(env, n));
        } else if (n == -EAGAIN) {
            t = s->out_edge ? am.more : wait_term(env, sock_wait(s, &self));
        } else if (n == -EPIPE || n == -ECONNRESET) {
            io_send_end(&c, s, (int)-n);
            t = error(env, am.closed);
        } else {
            t = posix(env, (int)n);
        }
        pthread_mutex_unlock(&s->mtx);
    }
    if (fd >= 0)
        sys_close(fd);
    if (file >= 0)
        sys_close(file);
    return t;
}

/* sendfile_end(Ref): what was sent meanwhile goes out now. */
NIF(n_sendfile_end)
{
    sock_t *s;
    if (argc != 1 || !get_sock(env, argv[0], &s))
        BADARG;
    ctx_t c = ctx(env);
    pthread_mutex_lock(&s->mtx);
    if (s->file >= 0)
        sys_close(s->file);
    s->file = -1;
    s->file_began = false;
    s->sendfile = false;
    if (s->state == ST_CONNECTED) {
        if (sock_queued(s))
            io_flush(&c, s);
        else
            io_after_queue(&c, s);
    }
    pthread_mutex_unlock(&s->mtx);
    return am.ok;
}
