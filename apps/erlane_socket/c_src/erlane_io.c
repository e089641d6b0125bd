/* SPDX-License-Identifier: Apache-2.0 */
/* How a stream ends, and what is written later than it was sent. s->mtx is held
 * throughout. */
#include <errno.h>
#include <string.h>

#include "erlane_sock.h"

/* Ends and errors -------------------------------------------------------- */

static void tell_owner(ctx_t *c, sock_t *s, ERL_NIF_TERM tag, int err)
{
    ErlNifEnv *m = c->env;
    ERL_NIF_TERM sock = sock_term(m, s);
    s->delivered = true;
    ctx_send(c, &s->owner,
             err ? enif_make_tuple3(m, tag, sock, errno_term(m, err))
                 : enif_make_tuple2(m, tag, sock));
}

static void tell_closed(ctx_t *c, sock_t *s)
{
    if (!s->told_closed)
        tell_owner(c, s, am.tcp_closed, 0);
    s->told_closed = true;
}

/* Ended, and still its owner's? Without a monitor: asked only when it is used. */
bool io_kept(ctx_t *c, sock_t *s)
{
    if (s->kept && !enif_is_process_alive(c->env, &s->owner))
        s->kept = false;
    return s->kept;
}

/* Open, or ended and kept: there is still something to ask and to set. */
bool io_present(ctx_t *c, sock_t *s) { return s->fd >= 0 || io_kept(c, s); }

/* Closes the descriptor and keeps the rest for the owner. */
void io_keep(ctx_t *c, sock_t *s)
{
    bool owned = s->owned && !s->orphan;
    uint8_t active = s->active;
    sock_close(c, s, am.normal);
    s->kept = s->owned = owned;
    s->active = owned ? active : A_FALSE;
}

/* A kept socket has been set active: its owner is told, and then it is gone. */
void io_ended(ctx_t *c, sock_t *s)
{
    if (s->resetby)
        tell_owner(c, s, am.tcp_error, ECONNRESET);
    s->resetby = false;
    tell_closed(c, s);
    if (s->opt[OPT_EXIT_ON_CLOSE]) {
        s->kept = s->owned = false;
        s->active = A_FALSE;
    }
}

/* A process waits in send or sendfile: the end is its answer. */
static bool is_sending(const sock_t *s)
{
    for (const waiter_t *w = s->waiters; w; w = w->next)
        if (!w->empty && !w->room)
            return true;
    return s->sendfile;
}

/* err 0: the peer has closed its side. Comes again when a socket that is kept open
 * is read again. */
void io_read_end(ctx_t *c, sock_t *s, int err)
{
    if (err == ECONNRESET && !s->opt[OPT_SHOW_ECONNRESET])
        err = 0;
    bool active = s->active != A_FALSE;
    if (err == 0 && !is_sending(s))
        s->gone_send = true;
    if (active && err)
        tell_owner(c, s, am.tcp_error, err);
    if (active)
        tell_closed(c, s);
    in_free(&s->in);
    s->version++;
    s->readable = false;
    sock_wake_senders(c, s, am.closed);
    if (!s->opt[OPT_EXIT_ON_CLOSE])
        s->rd_closed = true;
    else if (active)
        sock_close(c, s, am.normal);
    else
        io_keep(c, s);
}

void io_send_end(ctx_t *c, sock_t *s, int err)
{
    if (err == EPIPE && !s->shut_queued)
        err = ECONNRESET;
    bool show = err == ECONNRESET && s->opt[OPT_SHOW_ECONNRESET];
    bool active = s->active != A_FALSE;
    sock_wake_senders(c, s, show ? errno_term(c->env, err) : am.closed);
    if (active && show)
        tell_owner(c, s, am.tcp_error, err);
    if (active) {
        tell_closed(c, s);
    } else {
        s->resetby = show; /* the next recv tells, whatever send has told */
        s->gone_recv = true;
    }
    if (active && s->opt[OPT_EXIT_ON_CLOSE])
        sock_close(c, s, am.normal);
    else
        io_keep(c, s);
}

/* Writing ---------------------------------------------------------------- */

/* The queue has got shorter, or is empty: who waits for that? */
void io_after_queue(ctx_t *c, sock_t *s)
{
    if (s->waiters)
        sock_wake_senders(c, s, am.ok);
    if (s->pend_shut && sock_queued(s) == 0 && !s->sendfile) {
        int how = s->pend_shut_rd ? SHUT_RDWR : SHUT_WR;
        s->pend_shut = false;
        if (sys_shutdown(s->fd, how) == 0)
            s->wr_shut = s->shut_queued = true;
    }
}

/* Who sent that has had its answer: unless a process waits, the next one tells. */
static void flush_failed(ctx_t *c, sock_t *s, int err)
{
    if (s->active == A_FALSE && !is_sending(s))
        s->gone_send = true;
    io_send_end(c, s, err);
}

/* Writes from the queue until it is empty, the kernel is full, or one slice
 * has gone; then the lane's next turn goes on. */
void io_flush(ctx_t *c, sock_t *s)
{
    struct iovec iov[MAX_IOV];
    size_t left = SEND_SLICE;
    while (sock_queued(s) > 0) {
        int n = 0;
        SysIOVec *v = enif_ioq_peek(s->q, &n);
        if (n > MAX_IOV)
            n = MAX_IOV;
        size_t asked = 0;
        int k = 0;
        for (; k < n && asked < left; k++) {
            iov[k].iov_base = v[k].iov_base;
            iov[k].iov_len = v[k].iov_len < left - asked ? v[k].iov_len : left - asked;
            asked += iov[k].iov_len;
        }
        ssize_t r = sys_sendv(s->fd, iov, k);
        count(c->lane, S_SEND, 1);
        if (r == -EAGAIN || r == -EWOULDBLOCK) {
            count(c->lane, S_EAGAIN, 1);
            int e = sock_register(s); /* the edge of EPOLLOUT brings us back */
            if (e < 0)
                flush_failed(c, s, -e);
            break;
        }
        if (r < 0) {
            flush_failed(c, s, (int)-r);
            return;
        }
        count(c->lane, S_SEND_BYTES, (uint64_t)r);
        enif_ioq_deq(s->q, (size_t)r, NULL);
        left -= (size_t)r;
        if (left == 0) {
            lane_push(c, s->lane, s);
            break;
        }
    }
    if (s->q && sock_queued(s) == 0) {
        enif_ioq_destroy(s->q); /* exists only while blocked */
        s->q = NULL;
    }
    if (s->fd >= 0)
        io_after_queue(c, s);
}
