/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, accepting, following the owner. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "erlane_glue.h"

/* Opening ---------------------------------------------------------------- */

/* The lane for a new socket: the one asked for (0 none), the caller's, else
 * any. Keeps a reference. */
static lane_t *new_lane(node_t *n, int want)
{
    pthread_mutex_lock(&n->mtx);
    lane_t *l = want > 0 && want <= n->lanes_n ? atomic_load(&n->lanes[want]) : NULL;
    if (l == NULL)
        l = lane_here(n);
    for (int i = 1; l == NULL && i <= n->lanes_n; i++)
        l = atomic_load(&n->lanes[i]);
    if (l)
        enif_keep_resource(l);
    pthread_mutex_unlock(&n->mtx);
    return l;
}

/* Wraps fd into a socket of lane l, owned by the caller, and gives back the
 * reference to l. Without a socket a descriptor of our own making is closed. */
static ERL_NIF_TERM wrap(ErlNifEnv *env, int fd, int family, int state, lane_t *l,
                         const inherit_t *from, bool own)
{
    ErlNifPid self;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t;
    sock_t *s = NULL;
    if (l == NULL)
        t = error(env, am.no_lane);
    else if (!get_pid(env, &self))
        t = enif_make_badarg(env);
    else if ((s = sock_new(l, fd, family, state)) == NULL)
        t = error(env, am.enomem);
    else {
        pthread_mutex_lock(&s->mtx);
        if (from)
            sock_inherit(s, from);
        /* Stopped while we made it: nobody would poll it. If it stops from here
         * on, it finds s on its list and waits for the mutex. */
        if (atomic_load(&l->stopped))
            sock_close(&c, s, am.normal);
        else
            sock_own(&c, s, &self);
        pthread_mutex_unlock(&s->mtx);
        t = ok(env, enif_make_resource(env, s));
        enif_release_resource(s); /* the term holds it now */
    }
    if (s == NULL && own)
        sys_close(fd);
    if (l)
        enif_release_resource(l);
    return t;
}

/* open(4 | 6 | 0, Protocol, Netns | undefined, Lane | 0) */
NIF(n_open)
{
    int fam, proto, lane;
    char path[256];
    ErlNifBinary b;
    if (argc != 4 || !enif_get_int(env, argv[0], &fam) || !enif_get_int(env, argv[1], &proto) ||
        !enif_get_int(env, argv[3], &lane))
        BADARG;
    bool ns = enif_inspect_binary(env, argv[2], &b);
    if (ns) {
        if (b.size >= sizeof path || memchr(b.data, 0, b.size))
            BADARG;
        memcpy(path, b.data, b.size);
        path[b.size] = 0;
    }
    int domain = fam == 4 ? AF_INET : fam == 6 ? AF_INET6 : AF_UNIX;
    int fd = sys_socket(domain, domain == AF_UNIX ? 0 : proto, ns ? path : NULL);
    return fd < 0 ? posix(env, fd)
                  : wrap(env, fd, fam, ST_OPEN, new_lane(node(env), lane), NULL, true);
}

/* fdopen(Fd, Lane | 0): what kind of socket it is, the kernel tells. Fd is not
 * touched unless there is a lane for it, and not closed on an error. */
NIF(n_fdopen)
{
    int fd, lane, domain = 0, listening = 0, connected = 0;
    if (argc != 2 || !enif_get_int(env, argv[0], &fd) || !enif_get_int(env, argv[1], &lane))
        BADARG;
    lane_t *l = new_lane(node(env), lane);
    if (l == NULL)
        return error(env, am.no_lane);
    int r = fd < 0 ? -EBADF : sys_adopt(fd, &domain, &listening, &connected);
    if (r < 0) {
        enif_release_resource(l);
        return posix(env, r);
    }
    return wrap(env, fd, domain == AF_INET ? 4 : domain == AF_INET6 ? 6 : 0,
                listening   ? ST_LISTENING
                : connected ? ST_CONNECTED
                            : ST_OPEN,
                l, NULL, false);
}

NIF(n_bind)
{
    sock_t *s;
    struct sys_addr a;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !get_addr(env, argv[1], &a))
        BADARG;
    pthread_mutex_lock(&s->mtx);
    int r = s->fd < 0 ? -EINVAL : sys_bind(s->fd, &a);
    pthread_mutex_unlock(&s->mtx);
    return result(env, r);
}

NIF(n_listen)
{
    sock_t *s;
    int backlog;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !enif_get_int(env, argv[1], &backlog))
        BADARG;
    pthread_mutex_lock(&s->mtx);
    int r = s->fd < 0 || s->state == ST_CONNECTED ? -EINVAL : sys_listen(s->fd, backlog);
    if (r == 0) {
        s->state = ST_LISTENING;
        r = sock_register(s);
    }
    pthread_mutex_unlock(&s->mtx);
    return result(env, r);
}

/* connect(Ref, Addr) -> ok | {wait, Ticket} | {error, Posix} */
NIF(n_connect)
{
    sock_t *s;
    struct sys_addr a;
    ErlNifPid self;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !get_addr(env, argv[1], &a) ||
        !get_pid(env, &self))
        BADARG;
    ERL_NIF_TERM t;
    pthread_mutex_lock(&s->mtx);
    int r = s->fd < 0 || s->state != ST_OPEN ? -EISCONN : sys_connect(s->fd, &a);
    if (r == -EINPROGRESS) {
        s->state = ST_CONNECTING;
        s->reader = self;
        s->reader_ticket = ++s->ticket;
        s->told = false;
        r = sock_register(s);
        t = r < 0 ? posix(env, r)
                  : enif_make_tuple2(env, am.wait, enif_make_uint64(env, s->reader_ticket));
    } else {
        if (r == 0)
            s->state = ST_CONNECTED;
        t = result(env, r);
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* connected(Ref, Ticket) -> ok | wait | {error, Posix}: after a wake-up. */
NIF(n_connected)
{
    sock_t *s;
    ErlNifUInt64 ticket;
    struct sys_addr a;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !enif_get_uint64(env, argv[1], &ticket))
        BADARG;
    pthread_mutex_lock(&s->mtx);
    int r = s->fd < 0 || s->state != ST_CONNECTING || s->reader_ticket != ticket
                ? -EINVAL
                : sys_connect_error(s->fd);
    bool again = r == 0 && sys_name(s->fd, 1, &a) == -ENOTCONN;
    if (again)
        s->told = false;
    else if (s->reader_ticket == ticket)
        s->reader_ticket = 0;
    if (r == 0 && !again) {
        s->state = ST_CONNECTED;
        s->readable = true;
    }
    pthread_mutex_unlock(&s->mtx);
    return again ? am.wait : result(env, r);
}

ERL_NIF_TERM active_term(ErlNifEnv *env, const sock_t *s)
{
    return s->active == A_TRUE    ? am.true_
           : s->active == A_ONCE  ? am.once
           : s->active == A_COUNT ? enif_make_int(env, s->count)
                                  : am.false_;
}

/* accept(Ref, 0 | Ticket) -> {Active, {ok, Ref} | {error, _}} | {wait, Ticket} |
 * {error, Posix}; Active is what the new socket inherits. */
NIF(n_accept)
{
    sock_t *s;
    ErlNifUInt64 ticket;
    ErlNifPid self;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !enif_get_uint64(env, argv[1], &ticket) ||
        !get_pid(env, &self))
        BADARG;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t;
    int fd = -EAGAIN;
    pthread_mutex_lock(&s->mtx);
    if (s->state == ST_CLOSED) {
        t = error(env, io_kept(&c, s) ? am.einval : am.closed);
        goto out;
    }
    if (s->state != ST_LISTENING) {
        t = error(env, am.einval);
        goto out;
    }
    waiter_t *w = NULL;
    for (w = s->waiters; w && w->ticket != ticket; w = w->next)
        ;
    /* A newcomer stands behind those who wait. */
    if (s->readable && (s->waiters == NULL || (w && w == s->waiters))) {
        fd = sys_accept(s->fd);
        if (fd == -EAGAIN || fd == -EWOULDBLOCK)
            s->readable = false;
    }
    /* Between accept4 and here an edge may have come; its event waits for
     * the mutex and sets the flag again. */
    if (fd == -EAGAIN || fd == -EWOULDBLOCK) {
        if (w == NULL && (w = sock_wait(s, &self)) != NULL &&
            enif_monitor_process(env, s, &self, &w->mon) != 0) {
            sock_unwait(&c, s, w->ticket);
            w = NULL;
        }
        int reg = sock_register(s); /* an adopted descriptor is not yet */
        if (w && reg < 0) {
            sock_unwait(&c, s, w->ticket);
            t = posix(env, reg);
        } else if (w) {
            w->woken = false;
            t = enif_make_tuple2(env, am.wait, enif_make_uint64(env, w->ticket));
        } else {
            t = error(env, am.enomem);
        }
        if (s->readable) /* a newcomer that queued: the first in line goes */
            sock_wake_acceptor(&c, s);
        goto out;
    }
    if (w)
        sock_unwait(&c, s, ticket); /* wakes the next, for there may be more */
    else if (s->readable)
        sock_wake_acceptor(&c, s);
    if (fd < 0) {
        t = posix(env, fd);
        goto out;
    }
    count(c.lane, S_ACCEPTED, 1);
    inherit_t from = {.linger0 = s->linger0, .lingers = s->lingers, .priority = s->priority};
    memcpy(from.opt, s->opt, sizeof from.opt);
    int family = s->family;
    ERL_NIF_TERM active = active_term(env, s);
    pthread_mutex_unlock(&s->mtx);
    t = wrap(env, fd, family, ST_CONNECTED, new_lane(node(env), 0), &from, true);
    return enif_make_tuple2(env, active, t);
out:
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* cancel(Ref, Ticket) -> ok when the wait is over and nothing was sent, gone
 * when an answer is on its way or has come. */
NIF(n_cancel)
{
    sock_t *s;
    ErlNifUInt64 ticket;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !enif_get_uint64(env, argv[1], &ticket))
        BADARG;
    ctx_t c = ctx(env);
    pthread_mutex_lock(&s->mtx);
    bool found = s->reader_ticket == ticket && ticket != 0;
    if (found)
        s->reader_ticket = 0;
    else
        found = sock_unwait(&c, s, ticket);
    pthread_mutex_unlock(&s->mtx);
    return found ? am.ok : am.gone;
}

/* Following the owner ---------------------------------------------------- */

/* True when the owner has called often enough from another lane. */
bool wants_to_follow(ErlNifEnv *env, sock_t *s, lane_t *here)
{
    ErlNifPid self;
    if (here == NULL || here == s->lane || s->relay || !s->registered) {
        s->foreign = 0;
        return false;
    }
    if (!get_pid(env, &self) || !s->owned || enif_compare_pids(&self, &s->owner) != 0)
        return false;
    if (++s->foreign < FOLLOW_CALLS)
        return false;
    s->foreign = 0;
    int64_t now = sys_now_ms();
    if (now - s->moved_ms < FOLLOW_MS)
        return false;
    s->moved_ms = now;
    return true;
}

/* leave(Ref) -> ok | no: out of the old lane's poll set. The owner then takes
 * in all messages the old lane sent, and calls join/1. */
NIF(n_leave)
{
    sock_t *s;
    if (argc != 1 || !get_sock(env, argv[0], &s))
        BADARG;
    pthread_mutex_lock(&s->mtx);
    bool go = s->fd >= 0 && s->registered && !s->moving && !s->relay &&
              lane_leave(s->lane, s) == 0;
    if (go)
        s->moving = true;
    pthread_mutex_unlock(&s->mtx);
    return go ? am.ok : am.gone;
}

void change_lane(sock_t *s, lane_t *l)
{
    lane_t *old = s->lane;
    lane_unlink(s);
    enif_keep_resource(l);
    s->lane = l;
    lane_link(s);
    enif_release_resource(old);
    count_shared(l, S_MOVED, 1);
}

NIF(n_join)
{
    sock_t *s;
    if (argc != 1 || !get_sock(env, argv[0], &s))
        BADARG;
    ctx_t c = ctx(env);
    pthread_mutex_lock(&s->mtx);
    int r = 0;
    if (s->fd >= 0 && s->moving) {
        s->moving = false;
        if (c.lane && c.lane != s->lane && !atomic_load(&c.lane->stopped))
            change_lane(s, c.lane);
        bool stopped = atomic_load(&s->lane->stopped); /* again, now that it is on the list */
        if (!stopped)
            r = sock_register(s); /* reports what is ready now as a first edge */
        if (stopped || r < 0)
            sock_close(&c, s, am.normal);
        else if (s->active != A_FALSE && (s->readable || s->in.used))
            lane_push(&c, s->lane, s);
        else if (sock_queued(s) || !s->monitored)
            lane_push(&c, s->lane, s);
    }
    pthread_mutex_unlock(&s->mtx);
    return result(env, r);
}
