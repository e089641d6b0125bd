/* SPDX-License-Identifier: Apache-2.0 */
/* Closing, options, names, statistics, the owner. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "erlane_glue.h"

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
        s->kept = false;
    }
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* close_now(Ref, false | true: with a reset | keep: the descriptor alone |
 * reset: as if the peer had reset it, of which the owner is told) */
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
        if (argv[1] == am.reset && s->state == ST_CONNECTED) {
            s->lingers = false; /* else its close would undo the reset */
            sys_reset_on_close(s->fd);
            io_send_end(&c, s, ECONNRESET);
        } else if (argv[1] == am.keep) {
            io_keep(&c, s);
        } else if (argv[1] != am.reset) {
            sock_close(&c, s, am.normal);
        }
    }
    if (argv[1] != am.keep && argv[1] != am.reset)
        s->kept = false;
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
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.ok;
    pthread_mutex_lock(&s->mtx);
    /* Output that is only delayed does not delay the shutdown. */
    if (how > 0 && s->state == ST_CONNECTED && s->opt[OPT_DELAY_SEND] && !s->relay &&
        !s->sendfile)
        io_flush(&c, s);
    if (s->state != ST_CONNECTED || s->relay) {
        t = error(env, s->state == ST_CLOSED && !io_kept(&c, s) ? am.closed : am.enotconn);
    } else if (how > 0 && (sock_queued(s) > 0 || s->sendfile)) {
        s->pend_shut = true;
        s->pend_shut_rd = how == 2;
    } else if ((r = sys_shutdown(s->fd, how)) < 0) {
        t = posix(env, r);
    } else {
        s->wr_shut = s->wr_shut || how > 0;
        s->readable = s->readable || how != 1;
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
    if (r == 0 && level == SOL_SOCKET && name == SO_PRIORITY && b.size == sizeof s->priority)
        memcpy(&s->priority, b.data, b.size);
    struct linger l;
    if (r == 0 && level == SOL_SOCKET && name == SO_LINGER && b.size == sizeof l) {
        memcpy(&l, b.data, sizeof l);
        s->lingers = l.l_onoff && l.l_linger > 0;
    }
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

/* What is buffered may be whole packets under the new rules. */
static void reconsider(ctx_t *c, sock_t *s)
{
    if (s->state != ST_CONNECTED || !s->in.used)
        return;
    if (s->active != A_FALSE)
        lane_push(c, s->lane, s);
    else
        sock_notify_reader(c, s, am.ready);
}

NIF(n_setopt)
{
    int k, v;
    if (argc != 3 || !enif_get_int(env, argv[1], &k) || !enif_get_int(env, argv[2], &v))
        BADARG;
    if (k < 0 || (k >= OPT_STORED && k != OPT_RECBUF))
        return error(env, am.einval);
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    ctx_t c = ctx(env);
    bool good = io_present(&c, s);
    if (good && k == OPT_RECBUF) {
        /* `buffer` follows up until it is set itself */
        if (s->opt[OPT_BUFFER_SET] != BUFFER_HERE && v > s->opt[OPT_BUFFER])
            s->opt[OPT_BUFFER] = v;
    } else if (good) {
        s->opt[k] = v;
        if (k == OPT_BUFFER)
            s->opt[OPT_BUFFER_SET] = BUFFER_HERE;
        if (k == OPT_LINGER_ZERO)
            s->linger0 = v != 0;
        if (k == OPT_PACKET) {
            s->http_hdr = false;
            s->version++;
        }
        if (k == OPT_PACKET || k == OPT_PACKET_SIZE) {
            s->need = 0;
            reconsider(&c, s);
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
    ctx_t c = ctx(env);
    bool kept = s->fd < 0 && io_kept(&c, s), good = s->fd >= 0 || kept || k == OPT_STATE;
    if (k >= 0 && k < OPT_STORED)
        v = s->opt[k];
    else
        switch (k) {
        case OPT_FAMILY:
            v = s->family;
            break;
        case OPT_FD:
            v = s->fd;
            good = v >= 0;
            break;
        case OPT_LANE:
            v = s->lane->index;
            break;
        case OPT_STATE:
            v = kept ? ST_KEPT : s->state;
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
    ctx_t c = ctx(env);
    int r = s->fd >= 0        ? sys_name(s->fd, peer, &a)
            : !io_kept(&c, s) ? -EINVAL
            : peer            ? -ENOTCONN
                              : -EBADF;
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
    ctx_t c = ctx(env);
    bool open = io_present(&c, s);
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
    ctx_t c = ctx(env);
    int state = s->fd < 0 && io_kept(&c, s) ? ST_KEPT : s->state;
    ERL_NIF_TERM owner = s->owned ? enif_make_pid(env, &s->owner) : am.undefined;
    ERL_NIF_TERM t = enif_make_tuple6(
        env, owner, enif_make_int(env, state), s->reader_ticket ? am.true_ : am.false_,
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
    ctx_t c = ctx(env);
    ERL_NIF_TERM t;
    if (!io_present(&c, s))
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

/* False when pid is dead: then all stays as it was. */
static bool change_owner(ctx_t *c, sock_t *s, const ErlNifPid *pid)
{
    ErlNifPid p = *pid;
    if (!enif_is_process_alive(c->env, &p))
        return false;
    if (s->fd < 0) { /* kept: no lane looks after it */
        s->owner = *pid;
        return true;
    }
    sock_disown(c, s);
    sock_own(c, s, pid);
    s->foreign = 0;
    return true;
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
    if (!io_present(&c, s))
        t = error(env, am.closed);
    else if (s->owned && enif_compare_pids(&self, &s->owner) != 0)
        t = error(env, am.not_owner);
    else if (!change_owner(&c, s, &pid))
        t = error(env, am.badarg);
    pthread_mutex_unlock(&s->mtx);
    return t;
}

/* give(Ref, Pid) -> ok | busy | {error, badarg | closed | not_owner}: the whole
 * of controlling_process for a passive socket that has sent its owner nothing,
 * as a fresh one is; else busy. */
NIF(n_give)
{
    ErlNifPid self, pid;
    if (argc != 2 || !get_pid(env, &self) || !enif_get_local_pid(env, argv[1], &pid))
        BADARG;
    sock_t *s = open_sock(env, argv[0]);
    if (s == NULL)
        BADARG;
    ctx_t c = ctx(env);
    ERL_NIF_TERM t = am.ok;
    if (!io_present(&c, s))
        t = error(env, am.closed);
    else if (s->owned && enif_compare_pids(&pid, &s->owner) == 0)
        t = am.ok;
    else if (!s->owned || enif_compare_pids(&self, &s->owner) != 0)
        t = error(env, am.not_owner);
    else if (s->active != A_FALSE || s->delivered)
        t = am.busy;
    else if (!change_owner(&c, s, &pid))
        t = error(env, am.badarg);
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
