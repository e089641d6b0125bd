/* SPDX-License-Identifier: Apache-2.0 */
/* The door: every argument is checked here, terms become C values and back.
 * Answers: ok | {ok, T} | {error, Atom} | {wait, Ticket} and a few atoms that
 * erlane_nif.erl explains. Wrong types are badarg, as for any NIF. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "erlane_sock.h"

ErlNifResourceType *sock_type, *lane_type, *relay_type;
struct atoms am;

#define NIF(name) static ERL_NIF_TERM name(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
#define BADARG return enif_make_badarg(env)

/* Terms ------------------------------------------------------------------ */

static ERL_NIF_TERM error(ErlNifEnv *env, ERL_NIF_TERM why)
{
    return enif_make_tuple2(env, am.error, why);
}

static ERL_NIF_TERM ok(ErlNifEnv *env, ERL_NIF_TERM t) { return enif_make_tuple2(env, am.ok, t); }

/* The field's name of an errno: econnreset for ECONNRESET. */
ERL_NIF_TERM errno_term(ErlNifEnv *env, int err)
{
    const char *n = strerrorname_np(err);
    char low[32] = "unknown";
    size_t i = 0;
    for (; n && n[i] && i < sizeof low - 1; i++)
        low[i] = (char)(n[i] >= 'A' && n[i] <= 'Z' ? n[i] + 32 : n[i]);
    if (n)
        low[i] = 0;
    return enif_make_atom(env, low);
}

static ERL_NIF_TERM posix(ErlNifEnv *env, int err)
{
    if (err < 0)
        err = -err;
    return error(env, err == ENOTCONN ? am.enotconn : errno_term(env, err));
}

static ERL_NIF_TERM result(ErlNifEnv *env, int r) { return r < 0 ? posix(env, r) : am.ok; }

static bool get_sock(ErlNifEnv *env, ERL_NIF_TERM t, sock_t **s)
{
    return enif_get_resource(env, t, sock_type, (void **)s);
}

static bool get_pid(ErlNifEnv *env, ErlNifPid *pid) { return enif_self(env, pid) != NULL; }

static node_t *node(ErlNifEnv *env) { return enif_priv_data(env); }

static ctx_t ctx(ErlNifEnv *env)
{
    ctx_t c = {.env = env, .lane = lane_here(node(env))};
    return c;
}

static ERL_NIF_TERM addr_term(ErlNifEnv *env, const struct sys_addr *a)
{
    ERL_NIF_TERM e[8];
    if (a->ss.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&a->ss;
        const unsigned char *b = (const unsigned char *)&in->sin_addr;
        for (int i = 0; i < 4; i++)
            e[i] = enif_make_int(env, b[i]);
        return enif_make_tuple2(env, enif_make_tuple_from_array(env, e, 4),
                                enif_make_int(env, ntohs(in->sin_port)));
    }
    if (a->ss.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&a->ss;
        for (int i = 0; i < 8; i++)
            e[i] = enif_make_int(env, in->sin6_addr.s6_addr[2 * i] << 8 |
                                          in->sin6_addr.s6_addr[2 * i + 1]);
        return enif_make_tuple2(env, enif_make_tuple_from_array(env, e, 8),
                                enif_make_int(env, ntohs(in->sin6_port)));
    }
    if (a->ss.ss_family == AF_UNIX) {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&a->ss;
        size_t off = offsetof(struct sockaddr_un, sun_path);
        size_t n = a->len > off ? a->len - off : 0;
        if (n > 0 && un->sun_path[0] != 0)
            n = strnlen(un->sun_path, n); /* a path; else an abstract name */
        ERL_NIF_TERM t;
        memcpy(enif_make_new_binary(env, n, &t), un->sun_path, n);
        return enif_make_tuple2(env, am.local, t);
    }
    return am.undefined;
}

/* {inet, {A,B,C,D}, Port} | {inet6, {A..H}, Port, Flow, Scope} | {local, Bin} */
static bool get_addr(ErlNifEnv *env, ERL_NIF_TERM t, struct sys_addr *a)
{
    const ERL_NIF_TERM *e, *ip;
    int n, k, v;
    unsigned port, flow = 0, scope = 0;
    memset(a, 0, sizeof *a);
    if (!enif_get_tuple(env, t, &n, &e) || n < 2)
        return false;
    if (e[0] == am.local && n == 2) {
        struct sockaddr_un *un = (struct sockaddr_un *)&a->ss;
        ErlNifBinary b;
        if (!enif_inspect_binary(env, e[1], &b) || b.size > sizeof un->sun_path)
            return false;
        un->sun_family = AF_UNIX;
        memcpy(un->sun_path, b.data, b.size);
        a->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + b.size);
        if (b.size > 0 && b.data[0] != 0 && b.size < sizeof un->sun_path)
            a->len++;
        return true;
    }
    if (n < 3 || !enif_get_tuple(env, e[1], &k, &ip) || !enif_get_uint(env, e[2], &port) ||
        port > 65535)
        return false;
    if (e[0] == am.inet4 && n == 3 && k == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)&a->ss;
        unsigned char *b = (unsigned char *)&in->sin_addr;
        for (int i = 0; i < 4; i++) {
            if (!enif_get_int(env, ip[i], &v) || v < 0 || v > 255)
                return false;
            b[i] = (unsigned char)v;
        }
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
        a->len = sizeof *in;
        return true;
    }
    if (e[0] == am.inet6 && n == 5 && k == 8 && enif_get_uint(env, e[3], &flow) &&
        enif_get_uint(env, e[4], &scope)) {
        struct sockaddr_in6 *in = (struct sockaddr_in6 *)&a->ss;
        for (int i = 0; i < 8; i++) {
            if (!enif_get_int(env, ip[i], &v) || v < 0 || v > 65535)
                return false;
            in->sin6_addr.s6_addr[2 * i] = (unsigned char)(v >> 8);
            in->sin6_addr.s6_addr[2 * i + 1] = (unsigned char)v;
        }
        in->sin6_family = AF_INET6;
        in->sin6_port = htons((uint16_t)port);
        in->sin6_flowinfo = htonl(flow);
        in->sin6_scope_id = scope;
        a->len = sizeof *in;
        return true;
    }
    return false;
}

/* Lanes ------------------------------------------------------------------ */

static bool get_lane(ErlNifEnv *env, ERL_NIF_TERM t, lane_t **l)
{
    return enif_get_resource(env, t, lane_type, (void **)l);
}

/* lane_open(Index) -> {ok, Lane}: the same lane again while it is open, so a
 * restarted poller adopts the poll set. The caller becomes the poller. */
NIF(n_lane_open)
{
    node_t *n = node(env);
    int i;
    ErlNifPid self;
    if (argc != 1 || !enif_get_int(env, argv[0], &i) || i < 1 || i > n->lanes_n ||
        !get_pid(env, &self))
        BADARG;
    pthread_mutex_lock(&n->mtx);
    lane_t *l = atomic_load(&n->lanes[i]);
    if (l == NULL && (l = lane_open(env, n, i)) != NULL)
        atomic_store(&n->lanes[i], l); /* the table's reference */
    pthread_mutex_unlock(&n->mtx);
    if (l == NULL)
        return error(env, am.enomem);
    pthread_mutex_lock(&l->pid_mtx);
    l->poller = self;
    l->has_poller = true;
    pthread_mutex_unlock(&l->pid_mtx);
    return ok(env, enif_make_resource(env, l));
}

NIF(n_lane_turn)
{
    lane_t *l;
    ErlNifPid self;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self) ||
        enif_compare_pids(&self, &l->poller) != 0 || atomic_load(&l->stopped))
        BADARG; /* a lane has one poller */
    return lane_turn(env, l);
}

NIF(n_lane_sleep)
{
    lane_t *l;
    ErlNifPid self;
    int64_t wait;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self) ||
        enif_compare_pids(&self, &l->poller) != 0 || atomic_load(&l->stopped))
        BADARG;
    int r = lane_sleep(env, l, &wait);
    if (r < 0)
        return posix(env, r);
    return r == 1 ? am.busy : wait < 0 ? am.infinity : enif_make_int64(env, wait);
}

/* lane_woke(Lane): the poller is up again; nobody needs to wake it now. */
NIF(n_lane_woke)
{
    lane_t *l;
    if (argc != 1 || !get_lane(env, argv[0], &l))
        BADARG;
    atomic_store(&l->asleep, 0);
    count(l, S_WAKES, 1);
    return am.ok;
}

/* lane_close(Lane): closes its sockets and gives the poll set back. */
NIF(n_lane_close)
{
    lane_t *l;
    node_t *n = node(env);
    ErlNifPid self;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self) ||
        enif_compare_pids(&self, &l->poller) != 0)
        BADARG;
    if (atomic_exchange(&l->stopped, true))
        return am.ok;
    pthread_mutex_lock(&n->mtx);
    if (atomic_load(&n->lanes[l->index]) == l)
        atomic_store(&n->lanes[l->index], NULL);
    pthread_mutex_unlock(&n->mtx);
    ctx_t c = {.env = env, .lane = l};
    l->ev_i = l->ev_n = 0;
    for (;;) {
        pthread_mutex_lock(&l->list_mtx);
        sock_t *s = l->list;
        if (s)
            enif_keep_resource(s);
        pthread_mutex_unlock(&l->list_mtx);
        if (s == NULL)
            break;
        pthread_mutex_lock(&s->mtx);
        relay_t *r = s->relay;
        if (r)
            enif_keep_resource(r);
        if (!r && s->lane == l)
            sock_close(&c, s, am.normal);
        pthread_mutex_unlock(&s->mtx);
        if (r) {
            atomic_store(&r->stop, 1);
            pthread_mutex_lock(&s->mtx);
            if (s->relay)
                relay_event(&c, s->relay, s, 0, NULL);
            pthread_mutex_unlock(&s->mtx);
            enif_release_resource(r);
        }
        enif_release_resource(s);
    }
    for (sock_t *s = atomic_exchange(&l->pending, NULL); s;) {
        sock_t *next = s->pending_next;
        atomic_store(&s->pending, false);
        enif_release_resource(s);
        s = next;
    }
    lane_drain_dead(l);
    enif_select(env, (ErlNifEvent)l->epfd, ERL_NIF_SELECT_STOP, l, NULL, am.undefined);
    enif_release_resource(l); /* the table's reference */
    return am.ok;
}

/* lane_here() -> Index | 0 */
NIF(n_lane_here)
{
    (void)argc, (void)argv;
    lane_t *l = lane_here(node(env));
    return enif_make_int(env, l ? l->index : 0);
}

/* lane_stats(Index) -> [Integer] | undefined, in the order of erlane_socket. */
NIF(n_lane_stats)
{
    node_t *n = node(env);
    int i;
    if (argc != 1 || !enif_get_int(env, argv[0], &i) || i < 1 || i > n->lanes_n)
        BADARG;
    pthread_mutex_lock(&n->mtx); /* keeps the lane open */
    lane_t *l = atomic_load(&n->lanes[i]);
    ERL_NIF_TERM t = am.undefined;
    if (l) {
        ERL_NIF_TERM e[S_COUNT + 1];
        for (int k = 0; k < S_COUNT; k++)
            e[k] = enif_make_uint64(env, atomic_load_explicit(&l->stat[k], memory_order_relaxed));
        pthread_mutex_lock(&l->list_mtx);
        e[S_COUNT] = enif_make_int64(env, l->sockets);
        pthread_mutex_unlock(&l->list_mtx);
        t = enif_make_list_from_array(env, e, S_COUNT + 1);
    }
    pthread_mutex_unlock(&n->mtx);
    return t;
}

/* lane_list(Index) -> [Ref]; dirty, for it walks all sockets. */
NIF(n_lane_list)
{
    node_t *n = node(env);
    int i;
    if (argc != 1 || !enif_get_int(env, argv[0], &i) || i < 1 || i > n->lanes_n)
        BADARG;
    ERL_NIF_TERM t = enif_make_list(env, 0);
    pthread_mutex_lock(&n->mtx);
    lane_t *l = atomic_load(&n->lanes[i]);
    if (l) {
        pthread_mutex_lock(&l->list_mtx);
        for (sock_t *s = l->list; s; s = s->next)
            t = enif_make_list_cell(env, enif_make_resource(env, s), t);
        pthread_mutex_unlock(&l->list_mtx);
    }
    pthread_mutex_unlock(&n->mtx);
    return t;
}

/* Opening ---------------------------------------------------------------- */

/* The lane for a new socket: the caller's, else any. Keeps a reference. */
static lane_t *new_lane(node_t *n)
{
    pthread_mutex_lock(&n->mtx);
    lane_t *l = lane_here(n);
    for (int i = 1; l == NULL && i <= n->lanes_n; i++)
        l = atomic_load(&n->lanes[i]);
    if (l)
        enif_keep_resource(l);
    pthread_mutex_unlock(&n->mtx);
    return l;
}

/* Wraps fd into a socket owned by the caller and closes fd if it cannot. */
static ERL_NIF_TERM wrap(ErlNifEnv *env, int fd, int family, int state, const sock_t *from)
{
    ErlNifPid self;
    ctx_t c = ctx(env);
    lane_t *l = new_lane(node(env));
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
        (void)sock_own(&c, s, &self); /* the caller is alive */
        pthread_mutex_unlock(&s->mtx);
        t = ok(env, enif_make_resource(env, s));
        enif_release_resource(s); /* the term holds it now */
    }
    if (s == NULL)
        sys_close(fd);
    if (l)
        enif_release_resource(l);
    return t;
}

/* open(4 | 6 | 0, Protocol, Netns | undefined) */
NIF(n_open)
{
    int fam, proto;
    char path[256];
    ErlNifBinary b;
    if (argc != 3 || !enif_get_int(env, argv[0], &fam) || !enif_get_int(env, argv[1], &proto))
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
    return fd < 0 ? posix(env, fd) : wrap(env, fd, fam, ST_OPEN, NULL);
}

/* fdopen(Fd): what kind of socket it is, the kernel tells. */
NIF(n_fdopen)
{
    int fd, domain = 0, listening = 0, connected = 0;
    if (argc != 1 || !enif_get_int(env, argv[0], &fd))
        BADARG;
    int r = fd < 0 ? -EBADF : sys_adopt(fd, &domain, &listening, &connected);
    if (r < 0)
        return posix(env, r);
    return wrap(env, fd, domain == AF_INET ? 4 : domain == AF_INET6 ? 6 : 0,
                listening   ? ST_LISTENING
                : connected ? ST_CONNECTED
                            : ST_OPEN,
                NULL);
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
    if (!again && s->reader_ticket == ticket)
        s->reader_ticket = 0;
    if (r == 0 && !again) {
        s->state = ST_CONNECTED;
        s->readable = true;
    }
    pthread_mutex_unlock(&s->mtx);
    return again ? am.wait : result(env, r);
}

static ERL_NIF_TERM active_term(ErlNifEnv *env, const sock_t *s)
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
    sock_t from; /* options to inherit, copied before the lock is left */
    pthread_mutex_lock(&s->mtx);
    if (s->state == ST_CLOSED) {
        t = error(env, am.closed);
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
        if (w) {
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
    memcpy(from.opt, s->opt, sizeof from.opt);
    from.linger0 = s->linger0;
    from.family = s->family;
    ERL_NIF_TERM active = active_term(env, s);
    pthread_mutex_unlock(&s->mtx);
    return enif_make_tuple2(env, active, wrap(env, fd, from.family, ST_CONNECTED, &from));
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
static bool wants_to_follow(ErlNifEnv *env, sock_t *s, lane_t *here)
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
    if (go) {
        sys_epoll_del(s->lane->epfd, s->fd);
        s->registered = false;
        s->moving = true;
    }
    pthread_mutex_unlock(&s->mtx);
    return go ? am.ok : am.gone;
}

static void change_lane(sock_t *s, lane_t *l)
{
    lane_t *old = s->lane;
    lane_unlink(s);
    enif_keep_resource(l);
    s->lane = l;
    lane_link(s);
    enif_release_resource(old);
    count(l, S_MOVED, 1);
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
        r = sock_register(s); /* reports what is ready now as a first edge */
        if (r < 0)
            sock_close(&c, s, am.normal);
        else if (s->active != A_FALSE && (s->readable || s->in.used))
            lane_push(&c, s->lane, s);
        else if (sock_queued(s))
            lane_push(&c, s->lane, s);
    }
    pthread_mutex_unlock(&s->mtx);
    return result(env, r);
}

/* Sending ---------------------------------------------------------------- */

static int put_header(const sock_t *s, size_t len, unsigned char *h)
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

static bool enqueue(ErlNifEnv *env, sock_t *s, const unsigned char *h, size_t hn,
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

static size_t vec_size(ErlNifEnv *env, ERL_NIF_TERM list, int *elems, bool *bad)
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
static ssize_t write_now(ErlNifEnv *env, sock_t *s, lane_t *here, const unsigned char *h,
                         size_t hn, ERL_NIF_TERM data, const ErlNifBinary *one, size_t *asked)
{
    struct iovec iov[MAX_IOV];
    int k = 0;
    size_t size = one && one->size > SEND_SLICE ? SEND_SLICE : one ? one->size : 0;
    ssize_t r;
    count(here, S_SEND, 1);
    *asked = hn + size;
    if (one && hn == 0) {
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
        r = sys_sendv(s->fd, iov, k);
    }
    if (r == -EAGAIN || r == -EWOULDBLOCK) {
        count(here, S_EAGAIN, 1);
        return 0;
    }
    if (r > 0)
        count(here, S_SEND_BYTES, (uint64_t)r);
    return r;
}

static void count_send(sock_t *s, size_t n)
{
    s->send_cnt++;
    s->send_oct += n;
    if (n > s->send_max)
        s->send_max = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* send(Ref, Binary | [Binary]) -> ok | follow | {wait, Ticket, TimeoutMs} |
 * {error, _} | too_long (more than MAX_VEC binaries: flatten and call again) */
NIF(n_send)
{
    sock_t *s;
    ErlNifBinary bin;
    ErlNifPid self;
    int elems = 1;
    bool bad = false;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !get_pid(env, &self))
        BADARG;
    bool one = enif_inspect_binary(env, argv[1], &bin);
    size_t len = one ? bin.size : vec_size(env, argv[1], &elems, &bad);
    if (bad)
        return elems > MAX_VEC ? am.too_long : error(env, am.einval);
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.ok;
    unsigned char h[4];
    pthread_mutex_lock(&s->mtx);
    int hn = put_header(s, len, h);
    if (s->state != ST_CONNECTED || s->relay || hn < 0) {
        t = error(env, s->state == ST_CLOSED ? am.closed
                       : hn < 0             ? errno_term(env, EMSGSIZE)
                       : s->relay           ? am.einval
                                            : am.enotconn);
        goto out;
    }
    if (s->pend_shut) {
        io_error(&c, s, EPIPE, true);
        t = error(env, am.closed);
        goto out;
    }
    size_t total = len + (size_t)hn, queued = sock_queued(s);
    ssize_t n = 0;
    size_t asked = 0;
    if (total == 0)
        goto out;
    count_send(s, total);
    bool later = queued > 0 || s->sendfile || s->opt[OPT_DELAY_SEND];
    if (!later) {
        n = write_now(env, s, c.lane, h, (size_t)hn, argv[1], one ? &bin : NULL, &asked);
        if (n < 0) {
            io_error(&c, s, (int)-n, true);
            t = error(env, s->resetby || (n == -ECONNRESET && s->opt[OPT_SHOW_ECONNRESET])
                               ? errno_term(env, ECONNRESET)
                               : am.closed);
            goto out;
        }
        if ((size_t)n == total) {
            if (wants_to_follow(env, s, c.lane))
                t = am.follow;
            goto out;
        }
    }
    ERL_NIF_TERM list = one ? enif_make_list1(env, argv[1]) : argv[1];
    if (!enqueue(env, s, h, (size_t)hn, list, (size_t)n)) {
        /* half a packet may be out: the stream cannot go on */
        sock_close(&c, s, am.normal);
        t = error(env, am.enomem);
        goto out;
    }
    if (!later) {
        int r = sock_register(s);
        if (r < 0) {
            io_error(&c, s, -r, true);
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
    pthread_mutex_lock(&s->mtx);
    if (s->state != ST_CONNECTED || s->relay)
        t = error(env, s->state == ST_CLOSED ? am.closed : am.enotconn);
    else if (!s->owned || enif_compare_pids(&self, &s->owner) != 0)
        t = error(env, am.not_owner);
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
            io_error(&c, s, (int)-n, true);
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

/* Receiving -------------------------------------------------------------- */

/* recv(Ref, Length, 0 | Ticket) -> {ok, Data} | {decode, Bin, Version, Type,
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
        t = error(env, s->resetby ? errno_term(env, ECONNRESET) : am.closed);
        s->resetby = false;
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
        int r = io_take(env, s, buf, (size_t)len, &data, &c);
        int reg = r == 0 || r == 2 ? sock_register(s) : 0;
        if (r == 1) {
            s->reader_ticket = 0;
            t = ok(env, data);
        } else if (r < 0) {
            if (s->fd >= 0)
                s->reader_ticket = 0;
            t = r == -ENOTCONN ? error(env, am.closed) : posix(env, r);
        } else if (reg < 0) {
            t = posix(env, reg);
        } else {
            if (ticket == 0 || s->reader_ticket != ticket)
                ticket = ++s->ticket;
            s->reader = self;
            s->reader_ticket = ticket;
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

/* take(Ref, Version, N, HttpHeader, Msg | none) -> {ok, Version} | gone: N
 * decoded bytes leave the buffer if nobody took bytes since Version; Msg goes
 * to the owner, and then the socket must be active. */
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
        t = ok(env, enif_make_uint(env, s->version));
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* fail(Ref, emsgsize | eof): a packet that is too long, or (eof) the read that
 * was put off until the last packets had been decoded. */
NIF(n_fail)
{
    sock_t *s;
    if (argc != 2 || !get_sock(env, argv[0], &s))
        BADARG;
    ctx_t c = ctx(env);
    pthread_mutex_lock(&s->mtx);
    if (s->state == ST_CONNECTED) {
        s->reader_ticket = 0;
        io_error(&c, s, argv[1] == am.ready ? 0 : EMSGSIZE, false);
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
        t = error(env, s->state == ST_CLOSED ? am.closed : am.enotconn);
    else if (!in_push_front(&s->in, b.data, b.size))
        t = error(env, am.enomem);
    else {
        s->version++;
        if (s->active != A_FALSE)
            lane_push(&c, s->lane, s);
        else
            sock_notify_reader(&c, s, am.ready);
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* active(Ref, true | false | once | N) -> ok | fetch | follow |
 * {error, einval}. fetch: a packet was sent to the caller by itself; it must
 * take its messages in before others send more. */
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
    int sum = (s->active == A_COUNT ? s->count : 0) + n;
    if (s->state == ST_CLOSED || s->relay || sum > INT16_MAX || sum < INT16_MIN) {
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
            if (s->owned)
                ctx_send(&c, &s->owner, enif_make_tuple2(m, am.tcp_passive, sock_term(m, s)));
        }
    }
    if (s->active == A_FALSE || s->state != ST_CONNECTED || s->rd_closed || s->moving)
        goto out;
    if (!s->registered) {
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
                io_error(&c, s, -r, false);
            else if (s->in.used)
                lane_push(&c, s->lane, s);
        }
    } else if (s->readable || s->in.used) {
        lane_push(&c, s->lane, s);
    }
    if (t == am.ok && wants_to_follow(env, s, c.lane))
        t = am.follow;
out:
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* Closing ---------------------------------------------------------------- */

/* close(Ref) -> ok | {wait, Ticket, Queued, Linger0}: queued output first. */
NIF(n_close)
{
    sock_t *s;
    ErlNifPid self;
    if (argc != 1 || !get_sock(env, argv[0], &s) || !get_pid(env, &self))
        BADARG;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.ok;
    pthread_mutex_lock(&s->mtx);
    size_t q = sock_queued(s);
    if (s->relay) {
        relay_ask_stop(&c, s->relay, 1);
    } else if (q > 0 && !s->linger0 && s->state == ST_CONNECTED) {
        waiter_t *w = sock_wait(s, &self);
        if (w) {
            w->empty = true;
            t = enif_make_tuple3(env, am.wait, enif_make_uint64(env, w->ticket),
                                 enif_make_uint64(env, q));
        } else {
            sock_close(&c, s, am.normal);
        }
    } else {
        sock_close(&c, s, am.normal);
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* close_now(Ref, Reset :: boolean()) */
NIF(n_close_now)
{
    sock_t *s;
    if (argc != 2 || !get_sock(env, argv[0], &s))
        BADARG;
    ctx_t c = ctx(env);
    pthread_mutex_lock(&s->mtx);
    if (!s->relay && s->fd >= 0) {
        if (argv[1] == am.true_)
            sys_reset_on_close(s->fd);
        sock_close(&c, s, am.normal);
    }
    pthread_mutex_unlock(&s->mtx);
    return am.ok;
}

/* shutdown(Ref, 0 read | 1 write | 2 both) */
NIF(n_shutdown)
{
    sock_t *s;
    int how, r = 0;
    if (argc != 2 || !get_sock(env, argv[0], &s) || !enif_get_int(env, argv[1], &how) || how < 0 ||
        how > 2)
        BADARG;
    ERL_NIF_TERM t = am.ok;
    pthread_mutex_lock(&s->mtx);
    if (s->state != ST_CONNECTED || s->relay) {
        t = error(env, s->state == ST_CLOSED ? am.closed : am.enotconn);
    } else if (how > 0 && (sock_queued(s) > 0 || s->sendfile)) {
        s->pend_shut = true;
        s->pend_shut_rd = how == 2;
    } else if ((r = sys_shutdown(s->fd, how)) < 0) {
        t = posix(env, r);
    } else if (how == 0) {
        s->readable = true;
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* Options, names, statistics --------------------------------------------- */

static sock_t *open_sock(ErlNifEnv *env, ERL_NIF_TERM t)
{
    sock_t *s;
    if (!get_sock(env, t, &s))
        return NULL;
    pthread_mutex_lock(&s->mtx);
    return s;
}

NIF(n_setsockopt)
{
    int level, name;
    ErlNifBinary b;
    if (argc != 4 || !enif_get_int(env, argv[1], &level) || !enif_get_int(env, argv[2], &name) ||
        !enif_inspect_binary(env, argv[3], &b))
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    int r = s->fd < 0 ? -EINVAL : sys_setsockopt(s->fd, level, name, b.data, b.size);
    pthread_mutex_unlock(&s->mtx);
    return result(env, r);
}

NIF(n_getsockopt)
{
    int level, name;
    unsigned size;
    unsigned char buf[1024];
    if (argc != 4 || !enif_get_int(env, argv[1], &level) || !enif_get_int(env, argv[2], &name) ||
        !enif_get_uint(env, argv[3], &size) || size > sizeof buf)
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    socklen_t n = size;
    memset(buf, 0, sizeof buf);
    int r = s->fd < 0 ? -EINVAL : sys_getsockopt(s->fd, level, name, buf, &n);
    pthread_mutex_unlock(&s->mtx);
    if (r < 0)
        return posix(env, r);
    ERL_NIF_TERM t;
    n = n > size ? size : n;
    memcpy(enif_make_new_binary(env, n, &t), buf, n);
    return ok(env, t);
}

NIF(n_setopt)
{
    int k, v;
    if (argc != 3 || !enif_get_int(env, argv[1], &k) || !enif_get_int(env, argv[2], &v))
        BADARG;
    if (k < 0 || k >= OPT_STORED)
        return error(env, am.einval);
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    bool good = s->fd >= 0;
    if (good) {
        s->opt[k] = v;
        if (k == OPT_LINGER_ZERO)
            s->linger0 = v != 0;
        if (k == OPT_PACKET) {
            s->http_hdr = false;
            s->version++;
        }
        if (k == OPT_HIGH_WATERMARK && s->opt[OPT_LOW_WATERMARK] > v)
            s->opt[OPT_LOW_WATERMARK] = v;
        if (k == OPT_LOW_WATERMARK && s->opt[OPT_HIGH_WATERMARK] < v)
            s->opt[OPT_HIGH_WATERMARK] = v;
    }
    pthread_mutex_unlock(&s->mtx);
    return good ? am.ok : error(env, am.einval);
}

NIF(n_getopt)
{
    int k, v = 0;
    if (argc != 2 || !enif_get_int(env, argv[1], &k))
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    bool good = s->fd >= 0 || k == OPT_STATE;
    if (k >= 0 && k < OPT_STORED)
        v = s->opt[k];
    else
        switch (k) {
        case OPT_FAMILY:
            v = s->family;
            break;
        case OPT_FD:
            v = s->fd;
            break;
        case OPT_LANE:
            v = s->lane->index;
            break;
        case OPT_STATE:
            v = s->state;
            break;
        case OPT_SEND_PEND:
            v = sock_queued(s) > INT_MAX ? INT_MAX : (int)sock_queued(s);
            break;
        case OPT_ACTIVE:
            v = s->active == A_TRUE    ? -1
                : s->active == A_ONCE  ? -2
                : s->active == A_COUNT ? s->count
                                       : 0;
            break;
        default:
            good = false;
        }
    pthread_mutex_unlock(&s->mtx);
    return good ? ok(env, enif_make_int(env, v)) : error(env, am.einval);
}

/* name(Ref, sock | peer) as 0 | 1 */
NIF(n_name)
{
    int peer;
    struct sys_addr a;
    if (argc != 2 || !enif_get_int(env, argv[1], &peer))
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    int r = s->fd < 0 ? -EINVAL : sys_name(s->fd, peer, &a);
    pthread_mutex_unlock(&s->mtx);
    return r < 0 ? posix(env, r) : ok(env, addr_term(env, &a));
}

/* stat(Ref) -> [RecvOct, RecvCnt, RecvMax, RecvDvi, SendOct, SendCnt, SendMax,
 * SendPend] | {error, einval} */
NIF(n_stat)
{
    if (argc != 1)
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    bool open = s->fd >= 0;
    ErlNifUInt64 v[8] = {s->recv_oct, s->recv_cnt, s->recv_max, (ErlNifUInt64)s->recv_dvi,
                         s->send_oct, s->send_cnt, s->send_max, sock_queued(s)};
    pthread_mutex_unlock(&s->mtx);
    if (!open)
        return error(env, am.einval);
    ERL_NIF_TERM e[8];
    for (int i = 0; i < 8; i++)
        e[i] = enif_make_uint64(env, v[i]);
    return enif_make_list_from_array(env, e, 8);
}

/* info(Ref) -> {Owner | undefined, State, Reading, Writing, Waiters, Flags} */
NIF(n_info)
{
    if (argc != 1)
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    int waiters = 0;
    for (waiter_t *w = s->waiters; w; w = w->next)
        waiters++;
    int flags = s->rd_closed | s->wr_shut << 1 | s->pend_shut << 2 | (s->relay != NULL) << 3;
    ERL_NIF_TERM owner = s->owned ? enif_make_pid(env, &s->owner) : am.undefined;
    ERL_NIF_TERM t = enif_make_tuple6(
        env, owner, enif_make_int(env, s->state), s->reader_ticket ? am.true_ : am.false_,
        sock_queued(s) ? am.true_ : am.false_, enif_make_int(env, waiters),
        enif_make_int(env, flags));
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* watch(Ref) -> ok | gone: the monitor server hears when it closes. */
NIF(n_watch)
{
    if (argc != 1)
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    bool open = s->fd >= 0;
    s->watched = true;
    pthread_mutex_unlock(&s->mtx);
    return open ? am.ok : am.gone;
}

/* Owner ------------------------------------------------------------------ */

/* handover(Ref) -> {ok, Active} | {error, not_owner | closed}: delivery off. */
NIF(n_handover)
{
    ErlNifPid self;
    if (argc != 1 || !get_pid(env, &self))
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    ERL_NIF_TERM t;
    if (s->fd < 0)
        t = error(env, am.closed);
    else if (!s->owned || enif_compare_pids(&self, &s->owner) != 0)
        t = error(env, am.not_owner);
    else {
        t = ok(env, active_term(env, s));
        s->active = A_FALSE;
        s->count = 0;
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* own(Ref, Pid) -> ok | {error, badarg | closed | not_owner} */
NIF(n_own)
{
    ErlNifPid self, pid;
    if (argc != 2 || !get_pid(env, &self) || !enif_get_local_pid(env, argv[1], &pid))
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.ok;
    if (s->fd < 0)
        t = error(env, am.closed);
    else if (s->owned && enif_compare_pids(&self, &s->owner) != 0)
        t = error(env, am.not_owner);
    else if (!enif_is_process_alive(env, &pid))
        t = error(env, am.badarg);
    else {
        ErlNifPid old = s->owner;
        bool had = s->owned;
        sock_disown(&c, s);
        if (sock_own(&c, s, &pid) != 0) {
            t = error(env, am.badarg);
            if (had)
                (void)sock_own(&c, s, &old);
        }
        s->orphan = false;
        s->foreign = 0;
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* owner(Ref) -> pid() | undefined */
NIF(n_owner)
{
    if (argc != 1)
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    ERL_NIF_TERM t = s->owned ? enif_make_pid(env, &s->owner) : am.undefined;
    pthread_mutex_unlock(&s->mtx);
    return t;
}

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
        r->idle_ms = idle;
        r->half_ms = half;
        r->half_close = argv[6] == am.true_;
        e = -sock_register(s[0]);
        r->lane = s[0]->lane;
        if (e == 0 && s[1]->lane != r->lane) {
            if (s[1]->registered && lane_leave(s[1]->lane, s[1]) == 0) {
                sys_epoll_del(s[1]->lane->epfd, s[1]->fd);
                s[1]->registered = false;
            }
            if (s[1]->registered)
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
        count(r->lane, S_RELAYS, 1);
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

/* Loading ---------------------------------------------------------------- */

static void make_atoms(ErlNifEnv *env)
{
#define A(field, name) am.field = enif_make_atom(env, name)
    A(ok, "ok"), A(error, "error"), A(inet, "$inet"), A(module, "erlane_tcp"), A(tcp, "tcp");
    A(data, "data"), A(tcp_closed, "tcp_closed"), A(tcp_error, "tcp_error");
    A(tcp_passive, "tcp_passive"), A(wait, "wait"), A(async, "erlane_async");
    A(ready, "ready"), A(closed, "closed"), A(timeout, "timeout"), A(einval, "einval");
    A(true_, "true"), A(false_, "false"), A(once, "once"), A(decode, "decode");
    A(wake, "wake"), A(orphan, "orphan"), A(gone, "gone"), A(undefined, "undefined");
    A(nil, "none"), A(local, "local"), A(inet4, "inet"), A(inet6, "inet6"), A(eagain, "eagain");
    A(more, "more"), A(too_long, "too_long"), A(relay, "erlane_relay"), A(reason, "reason");
    A(to_a, "to_a"), A(to_b, "to_b"), A(ms, "ms"), A(normal, "normal"), A(reset, "reset");
    A(idle, "idle"), A(half_close, "half_close"), A(busy, "busy"), A(pending, "pending");
    A(not_owner, "not_owner"), A(badarg, "badarg"), A(enotconn, "enotconn");
    A(ealready, "ealready"), A(enomem, "enomem"), A(follow, "follow"), A(idle_ms, "idle_ms");
    A(stale, "stale"), A(http, "http"), A(ssl_tls, "ssl_tls"), A(sleep, "sleep");
    A(infinity, "infinity"), A(flush, "flush"), A(no_lane, "no_lane");
#undef A
}

static bool open_types(ErlNifEnv *env, node_t *n, ErlNifResourceFlags how)
{
    ErlNifResourceTypeInit sock = {.dtor = sock_dtor, .down = sock_down};
    ErlNifResourceTypeInit lane = {.dtor = lane_dtor, .stop = lane_stop_cb};
    ErlNifResourceTypeInit relay = {.dtor = relay_dtor, .down = relay_down};
    n->sock_type = sock_type = enif_open_resource_type_x(env, "erlane_sock", &sock, how, NULL);
    n->lane_type = lane_type = enif_open_resource_type_x(env, "erlane_lane", &lane, how, NULL);
    n->relay_type = relay_type = enif_open_resource_type_x(env, "erlane_relay", &relay, how, NULL);
    return sock_type && lane_type && relay_type;
}

static int load(ErlNifEnv *env, void **priv, ERL_NIF_TERM info)
{
    int schedulers;
    if (!enif_get_int(env, info, &schedulers) || schedulers < 1)
        return -1;
    node_t *n = enif_alloc(sizeof *n);
    if (n == NULL)
        return -1;
    memset(n, 0, sizeof *n);
    pthread_mutex_init(&n->mtx, NULL);
    n->lanes_n = schedulers;
    n->lanes = enif_alloc(sizeof *n->lanes * (size_t)(schedulers + 1));
    if (n->lanes == NULL)
        return -1;
    for (int i = 0; i <= schedulers; i++)
        atomic_init(&n->lanes[i], NULL);
    make_atoms(env);
    /* Takeover: a module that was purged and loaded again finds sockets that
     * outlived it. */
    if (!open_types(env, n, ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER))
        return -1;
    *priv = n;
    return 0;
}

/* New code while the old still runs: the lanes go on, the node is handed on. */
static int upgrade(ErlNifEnv *env, void **priv, void **old, ERL_NIF_TERM info)
{
    (void)info;
    node_t *n = *old;
    make_atoms(env);
    if (!open_types(env, n, ERL_NIF_RT_TAKEOVER))
        return -1;
    *priv = n;
    return 0;
}

/* The node may live on in newer code and in lanes; it is a few words. */
static void unload(ErlNifEnv *env, void *priv)
{
    (void)env, (void)priv;
}

#define DIRTY_IO ERL_NIF_DIRTY_JOB_IO_BOUND
static ErlNifFunc funcs[] = {
    {"lane_open", 1, n_lane_open, 0},
    {"lane_turn", 1, n_lane_turn, 0},
    {"lane_sleep", 1, n_lane_sleep, 0},
    {"lane_woke", 1, n_lane_woke, 0},
    {"lane_close", 1, n_lane_close, 0},
    {"lane_here", 0, n_lane_here, 0},
    {"lane_stats", 1, n_lane_stats, 0},
    {"lane_list", 1, n_lane_list, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"open", 3, n_open, 0},
    {"fdopen", 1, n_fdopen, 0},
    {"bind", 2, n_bind, 0},
    {"listen", 2, n_listen, 0},
    {"connect", 2, n_connect, 0},
    {"connected", 2, n_connected, 0},
    {"accept", 2, n_accept, 0},
    {"cancel", 2, n_cancel, 0},
    {"leave", 1, n_leave, 0},
    {"join", 1, n_join, 0},
    {"send", 2, n_send, 0},
    {"sendfile_begin", 2, n_sendfile_begin, 0},
    {"sendfile_step", 3, n_sendfile_step, DIRTY_IO},
    {"sendfile_end", 1, n_sendfile_end, 0},
    {"recv", 3, n_recv, 0},
    {"peek", 1, n_peek, 0},
    {"take", 5, n_take, 0},
    {"fail", 2, n_fail, 0},
    {"unrecv", 2, n_unrecv, 0},
    {"active", 2, n_set_active, 0},
    {"close", 1, n_close, 0},
    {"close_now", 2, n_close_now, 0},
    {"shutdown", 2, n_shutdown, 0},
    {"setsockopt", 4, n_setsockopt, 0},
    {"getsockopt", 4, n_getsockopt, 0},
    {"setopt", 3, n_setopt, 0},
    {"getopt", 2, n_getopt, 0},
    {"name", 2, n_name, 0},
    {"stat", 1, n_stat, 0},
    {"info", 1, n_info, 0},
    {"watch", 1, n_watch, 0},
    {"handover", 1, n_handover, 0},
    {"own", 2, n_own, 0},
    {"owner", 1, n_owner, 0},
    {"relay", 7, n_relay, 0},
    {"relay_info", 1, n_relay_info, 0},
    {"relay_stop", 2, n_relay_stop, 0},
    {"faults", 1, n_faults, 0},
};

ERL_NIF_INIT(erlane_nif, funcs, load, NULL, upgrade, unload)
