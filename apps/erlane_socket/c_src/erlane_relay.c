/* SPDX-License-Identifier: Apache-2.0 */
/* Two sockets joined inside a lane: what one side sends goes out on the other
 * in the same turn, and no process is woken for it.
 *
 *   - Both sockets belong to one lane and never move. Their poller is the only
 *     thread that reads or writes them; it takes both mutexes.
 *   - Back-pressure: what the other side does not take stays in pend[] (one
 *     read at most, plus what the caller had read before) and nothing more is
 *     read until it is gone, so TCP's own window stops the sender.
 *   - End of file on one side: pend[] out, then shutdown(write) on the other.
 *     Both delivered: both are closed. A reset is passed on as a reset.
 *   - Timeouts: a wheel of seconds per lane. A relay sits in the slot of its
 *     earliest possible expiry and is looked at only then.
 */
#include <errno.h>
#include <string.h>

#include "erlane_sock.h"

static sock_t *other(relay_t *r, sock_t *s) { return r->s[0] == s ? r->s[1] : r->s[0]; }

relay_t *relay_new(void)
{
    relay_t *r = enif_alloc_resource(relay_type, sizeof *r);
    if (r == NULL)
        return NULL;
    memset(r, 0, sizeof *r);
    r->slot = -1;
    r->idle_ms = r->half_ms = -1;
    pthread_mutex_init(&r->mtx, NULL);
    return r;
}

void relay_dtor(ErlNifEnv *env, void *obj)
{
    relay_t *r = obj;
    (void)env;
    enif_free(r->pend[0].data);
    enif_free(r->pend[1].data);
    pthread_mutex_destroy(&r->mtx);
}

static void unwheel(relay_t *r)
{
    if (r->slot < 0)
        return;
    if (r->prev)
        r->prev->next = r->next;
    else
        r->lane->wheel[r->slot] = r->next;
    if (r->next)
        r->next->prev = r->prev;
    r->slot = -1;
    r->lane->timed--;
}

/* The earliest time at which a timeout may be due, or -1. */
static int64_t deadline(const relay_t *r)
{
    int64_t d = r->idle_ms >= 0 ? atomic_load(&r->last_ms) + r->idle_ms : -1;
    if (r->half_ms >= 0 && r->half_since > 0) {
        int64_t h = r->half_since + r->half_ms;
        if (d < 0 || h < d)
            d = h;
    }
    return d;
}

static void rewheel(relay_t *r)
{
    lane_t *l = r->lane;
    int64_t d = deadline(r);
    unwheel(r);
    if (d < 0)
        return;
    if (l->timed == 0) /* the wheel stood still meanwhile */
        l->wheel_s = l->now_ms / 1000;
    int64_t ahead = d / 1000 - l->wheel_s;
    ahead = ahead < 1 ? 1 : ahead > WHEEL - 1 ? WHEEL - 1 : ahead;
    r->slot = (int)((l->wheel_s + ahead) % WHEEL);
    r->prev = NULL;
    r->next = l->wheel[r->slot];
    if (r->next)
        r->next->prev = r;
    l->wheel[r->slot] = r;
    l->timed++;
}

/* Ends the relay: both sockets close, the caller hears of it once. Both
 * sockets' mutexes are held. */
static void finish(ctx_t *c, relay_t *r, ERL_NIF_TERM reason, bool reset)
{
    sock_t *s[2] = {r->s[0], r->s[1]};
    if (s[0] == NULL)
        return;
    unwheel(r);
    count_shared(r->lane, S_RELAYS, -1);
    pthread_mutex_lock(&r->mtx);
    r->s[0] = r->s[1] = NULL;
    pthread_mutex_unlock(&r->mtx);
    ErlNifEnv *m = c->env;
    ERL_NIF_TERM keys[4] = {am.reason, am.to_b, am.to_a, am.ms};
    ERL_NIF_TERM vals[4] = {enif_make_copy(m, reason),
                            enif_make_uint64(m, atomic_load(&r->bytes[0])),
                            enif_make_uint64(m, atomic_load(&r->bytes[1])),
                            enif_make_int64(m, r->lane->now_ms - r->start_ms)};
    ERL_NIF_TERM map;
    enif_make_map_from_arrays(m, keys, vals, 4, &map);
    ctx_send(c, &r->pid, enif_make_tuple3(m, am.relay, enif_make_resource(m, r), map));
    enif_demonitor_process(c->env, r, &r->mon);
    for (int i = 0; i < 2; i++) {
        s[i]->relay = NULL;
        if (reset && s[i]->fd >= 0) {
            s[i]->lingers = false; /* else sock_close would take this back */
            sys_reset_on_close(s[i]->fd);
        }
        sock_close(c, s[i], am.normal);
    }
    /* The callers hold s[i]->mtx and a reference of their own or the lane's
     * (open or buried); these are the relay's. */
    enif_release_resource(s[0]);
    enif_release_resource(s[1]);
    enif_release_resource(r); /* the running relay's own reference */
}

static void broken(ctx_t *c, relay_t *r, int err)
{
    bool reset = err == ECONNRESET || err == EPIPE;
    finish(c, r,
           reset ? am.reset : enif_make_tuple2(c->env, am.error, errno_term(c->env, err)), true);
}

/* 1 gone, 0 blocked, -1 the relay has ended. */
static int push_pend(ctx_t *c, relay_t *r, int i)
{
    sock_t *to = r->s[1 - i];
    while (r->pend[i].len > 0) {
        ssize_t n = sys_send(to->fd, r->pend[i].data + r->pend[i].off, r->pend[i].len);
        count(c->lane, S_SEND, 1);
        if (n == -EAGAIN) {
            count(c->lane, S_EAGAIN, 1);
            return 0;
        }
        if (n < 0) {
            broken(c, r, (int)-n);
            return -1;
        }
        count(c->lane, S_SEND_BYTES, (uint64_t)n);
        atomic_fetch_add_explicit(&r->bytes[i], (uint64_t)n, memory_order_relaxed);
        atomic_store_explicit(&r->last_ms, r->lane->now_ms, memory_order_relaxed);
        r->pend[i].off += (size_t)n;
        r->pend[i].len -= (size_t)n;
    }
    if (r->pend[i].data) {
        enif_free(r->pend[i].data);
        r->pend[i].data = NULL;
    }
    return 1;
}

static int end_of_file(ctx_t *c, relay_t *r, int i)
{
    sock_t *to = r->s[1 - i];
    if (!r->shut[i]) {
        r->shut[i] = true;
        if (!r->half_close) {
            finish(c, r, am.normal, false);
            return -1;
        }
        (void)sys_shutdown(to->fd, SHUT_WR);
        to->wr_shut = true;
        r->half_since = r->lane->now_ms;
        if (r->half_ms >= 0)
            rewheel(r);
    }
    if (r->shut[0] && r->shut[1]) {
        finish(c, r, am.normal, false);
        return -1;
    }
    return 0;
}

/* Moves bytes from s[i] to the other side; one buffer a turn. -1: has ended. */
static int pump(ctx_t *c, relay_t *r, int i, unsigned char *buf)
{
    sock_t *from = r->s[i], *to = r->s[1 - i];
    int p = r->pend[i].len > 0 ? push_pend(c, r, i) : 1;
    if (p <= 0)
        return p;
    if (r->eof[i])
        return end_of_file(c, r, i);
    if (!from->readable)
        return 0;
    from->readable = false;
    ssize_t n = sys_recv(from->fd, buf, READ_BUF);
    count(c->lane, S_RECV, 1);
    if (n == -EAGAIN) {
        count(c->lane, S_EAGAIN, 1);
        return 0;
    }
    if (n == 0) {
        r->eof[i] = true;
        return end_of_file(c, r, i);
    }
    if (n < 0) {
        broken(c, r, (int)-n);
        return -1;
    }
    count(c->lane, S_RECV_BYTES, (uint64_t)n);
    from->readable = n == READ_BUF || from->hup;
    ssize_t w = sys_send(to->fd, buf, (size_t)n);
    count(c->lane, S_SEND, 1);
    if (w == -EAGAIN)
        w = 0;
    if (w < 0) {
        broken(c, r, (int)-w);
        return -1;
    }
    count(c->lane, S_SEND_BYTES, (uint64_t)w);
    atomic_store_explicit(&r->bytes[i],
                          atomic_load_explicit(&r->bytes[i], memory_order_relaxed) + (uint64_t)w,
                          memory_order_relaxed);
    atomic_store_explicit(&r->last_ms, r->lane->now_ms, memory_order_relaxed);
    if (w < n) {
        size_t rest = (size_t)(n - w);
        unsigned char *keep = enif_alloc(rest);
        if (keep == NULL) {
            broken(c, r, ENOMEM);
            return -1;
        }
        memcpy(keep, buf + w, rest);
        r->pend[i].data = keep;
        r->pend[i].off = 0;
        r->pend[i].len = rest;
    } else if (from->readable) {
        lane_push(c, r->lane, from);
    }
    return 0;
}

/* An event of s, whose mutex is held; ev 0: its turn on the pending list. */
void relay_event(ctx_t *c, relay_t *r, sock_t *s, uint32_t ev, unsigned char *buf)
{
    sock_t *o = other(r, s);
    int i = r->s[0] == s ? 0 : 1;
    enif_keep_resource(o);
    enif_keep_resource(r);
    pthread_mutex_lock(&o->mtx); /* only this poller ever takes two of a relay */
    int stop = atomic_load_explicit(&r->stop, memory_order_relaxed);
    int err = ev & EPOLLERR ? -sys_connect_error(s->fd) : 0;
    if (stop)
        finish(c, r, am.closed, stop == 2);
    else if (err)
        broken(c, r, err);
    else if (pump(c, r, i, buf) >= 0 && r->pend[1 - i].len > 0 &&
             (ev == 0 || (ev & EPOLLOUT)))
        (void)pump(c, r, 1 - i, buf);
    if (r->s[0] && r->slot < 0)
        rewheel(r); /* its first turn */
    pthread_mutex_unlock(&o->mtx);
    enif_release_resource(r);
    enif_release_resource(o);
}

/* Called by the process that starts the relay, with both mutexes held and both
 * sockets registered in r->lane: the poller does the rest. */
int relay_start(ctx_t *c, relay_t *r)
{
    r->start_ms = sys_now_ms();
    atomic_store(&r->last_ms, r->start_ms);
    for (int i = 0; i < 2; i++) {
        enif_keep_resource(r->s[i]);
        r->s[i]->relay = r;
        r->s[i]->readable = true;
        sock_disown(c, r->s[i]);
    }
    enif_keep_resource(r);
    lane_push(c, r->lane, r->s[0]);
    lane_push(c, r->lane, r->s[1]);
    return 0;
}

/* Poller only: relays whose second has come. */
void relay_tick(ctx_t *c, lane_t *l, unsigned char *buf)
{
    (void)buf;
    int64_t now_s = l->now_ms / 1000;
    int seen = 0;
    while (l->wheel_s < now_s) {
        l->wheel_s++;
        int slot = (int)(l->wheel_s % WHEEL);
        relay_t *r = l->wheel[slot];
        while (r) {
            if ((++seen & 15) == 0 && sys_now_ns() / 1000000 - l->now_ms > 1) {
                l->wheel_s--; /* enough for one turn: this slot again in the next */
                return;
            }
            relay_t *next = r->next;
            int64_t d = deadline(r);
            sock_t *a = r->s[0], *b = r->s[1];
            if (d < 0 || d > l->now_ms) {
                rewheel(r);
            } else {
                bool half = r->half_since > 0 && r->half_ms >= 0 &&
                            r->half_since + r->half_ms <= l->now_ms;
                enif_keep_resource(a);
                enif_keep_resource(b);
                pthread_mutex_lock(&a->mtx);
                pthread_mutex_lock(&b->mtx);
                finish(c, r, half ? am.half_close : am.idle, half);
                pthread_mutex_unlock(&b->mtx);
                pthread_mutex_unlock(&a->mtx);
                enif_release_resource(b);
                enif_release_resource(a);
            }
            r = next;
        }
        if (l->timed == 0)
            l->wheel_s = now_s;
    }
}

/* Asks the lane to end the relay: 1 after what is buffered is dropped, 2 with
 * a reset. Any thread. */
void relay_ask_stop(ctx_t *c, relay_t *r, int how)
{
    pthread_mutex_lock(&r->mtx);
    if (r->s[0]) {
        int was = 0;
        atomic_compare_exchange_strong(&r->stop, &was, how);
        lane_push(c, r->lane, r->s[0]);
    }
    pthread_mutex_unlock(&r->mtx);
}

void relay_down(ErlNifEnv *env, void *obj, ErlNifPid *pid, ErlNifMonitor *mon)
{
    ctx_t c = {.env = env};
    (void)pid, (void)mon;
    relay_ask_stop(&c, obj, 2); /* a stream cut short must not look like its end */
}
