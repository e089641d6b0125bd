/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: one poll set per scheduler, driven turn by turn by its poller. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "erlane_sock.h"

_Thread_local int my_lane __attribute__((tls_model("initial-exec")));

enum { TURN_NS = 700000, SLICE_NS = 1000000 };

lane_t *lane_here(node_t *n)
{
    int i = my_lane;
    return i > 0 && i <= n->lanes_n ? atomic_load(&n->lanes[i]) : NULL;
}

void lane_link(sock_t *s)
{
    lane_t *l = s->lane;
    pthread_mutex_lock(&l->list_mtx);
    s->next = l->list;
    s->prev = NULL;
    if (l->list)
        l->list->prev = s;
    l->list = s;
    l->sockets++;
    pthread_mutex_unlock(&l->list_mtx);
}

void lane_unlink(sock_t *s)
{
    lane_t *l = s->lane;
    pthread_mutex_lock(&l->list_mtx);
    if (s->prev)
        s->prev->next = s->next;
    else
        l->list = s->next;
    if (s->next)
        s->next->prev = s->prev;
    l->sockets--;
    pthread_mutex_unlock(&l->list_mtx);
}

void lane_wake(ctx_t *c, lane_t *l)
{
    /* Only a lane that sleeps is woken, and once. */
    if (atomic_exchange(&l->asleep, 0) == 0)
        return;
    pthread_mutex_lock(&l->pid_mtx);
    bool has = l->has_poller;
    ErlNifPid pid = l->poller;
    pthread_mutex_unlock(&l->pid_mtx);
    if (has)
        ctx_send(c, &pid, am.wake);
}

/* Asks the lane's poller to look at s in its next turn. Any thread. */
void lane_push(ctx_t *c, lane_t *l, sock_t *s)
{
    if (atomic_exchange(&s->pending, true))
        return;
    enif_keep_resource(s);
    sock_t *head = atomic_load(&l->pending);
    do
        s->pending_next = head;
    while (!atomic_compare_exchange_weak(&l->pending, &head, s));
    lane_wake(c, l);
}

/* Hands the open reference of a closed socket to the poller. Any thread. */
void lane_bury(lane_t *l, sock_t *s)
{
    sock_t *head = atomic_load(&l->dead);
    do
        s->dead_next = head;
    while (!atomic_compare_exchange_weak(&l->dead, &head, s));
}

/* Out of the poll set, but open: the lane gets one more reference, which it
 * drops when it holds no event of the socket. The reference is handed over
 * after EPOLL_CTL_DEL: before, the poller might drop it and then fetch one. */
int lane_leave(lane_t *l, sock_t *s)
{
    dead_t *d = enif_alloc(sizeof *d);
    if (d == NULL)
        return -ENOMEM;
    sys_epoll_del(l->epfd, s->fd);
    s->registered = false;
    enif_keep_resource(s);
    d->sock = s;
    dead_t *head = atomic_load(&l->left);
    do
        d->next = head;
    while (!atomic_compare_exchange_weak(&l->left, &head, d));
    return 0;
}

/* A new poller: every socket gets a turn, for what the old one had been told
 * and not done is lost. */
void lane_adopt(ctx_t *c, lane_t *l)
{
    atomic_store(&l->adopted, true);
    pthread_mutex_lock(&l->list_mtx);
    for (sock_t *s = l->list; s; s = s->next)
        lane_push(c, l, s);
    pthread_mutex_unlock(&l->list_mtx);
}

/* Poller only, and only when no fetched event is left. */
void lane_drain_dead(lane_t *l)
{
    sock_t *s = atomic_load_explicit(&l->dead, memory_order_relaxed)
                    ? atomic_exchange(&l->dead, NULL)
                    : NULL;
    while (s) {
        sock_t *next = s->dead_next;
        enif_release_resource(s);
        s = next;
    }
    dead_t *d = atomic_load_explicit(&l->left, memory_order_relaxed)
                    ? atomic_exchange(&l->left, NULL)
                    : NULL;
    while (d) {
        dead_t *next = d->next;
        enif_release_resource(d->sock);
        enif_free(d);
        d = next;
    }
}

static void connect_event(ctx_t *c, sock_t *s)
{
    if (s->reader_ticket)
        sock_notify_reader(c, s, am.ready);
}

/* One event of one socket, or (ev = 0) its turn on the pending list. */
static void handle(ctx_t *c, lane_t *l, sock_t *s, uint32_t ev, unsigned char *buf,
                   ERL_NIF_TERM *decode)
{
    pthread_mutex_lock(&s->mtx);
    if (s->fd < 0 || s->lane != l || s->moving) {
        count(l, S_STALE, ev != 0);
        if (ev == 0 && s->fd >= 0 && s->lane != l) /* it moved while it was listed here */
            lane_push(c, s->lane, s);
        pthread_mutex_unlock(&s->mtx);
        return;
    }
    if (s->owned && !s->monitored) {
        sock_watch_owner(c, s);
        if (s->fd < 0) {
            pthread_mutex_unlock(&s->mtx);
            return;
        }
    }
    if (ev & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        s->readable = true;
    if (ev & EPOLLPRI) /* urgent data ends a read early: short is not empty */
        s->readable = true;
    if (ev & (EPOLLPRI | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        s->hup = true;
    if (ev == 0 && s->orphan && atomic_load_explicit(&l->adopted, memory_order_relaxed))
        sock_orphaned(c, s);
    switch (s->state) {
    case ST_LISTENING:
        if (s->readable)
            sock_wake_acceptor(c, s);
        break;
    case ST_CONNECTING:
        if (ev)
            connect_event(c, s);
        break;
    case ST_CONNECTED:
        if (s->relay) {
            relay_event(c, s->relay, s, ev, buf);
            break;
        }
        if (s->q && !s->sendfile && (ev == 0 || (ev & (EPOLLOUT | EPOLLERR | EPOLLHUP))))
            io_flush(c, s);
        else if (s->sendfile && (ev == 0 || (ev & (EPOLLOUT | EPOLLERR | EPOLLHUP))))
            sock_room(c, s);
        if (s->fd < 0)
            break;
        if (s->active != A_FALSE) {
            io_active_read(c, s, buf, decode);
            /* cut off by its budget: nobody reminds us under edge triggering */
            if (s->fd >= 0 && s->active != A_FALSE && !s->rd_closed &&
                (s->cut || (s->readable && !s->ended)))
                lane_push(c, l, s);
        } else if (s->readable) {
            sock_notify_reader(c, s, am.ready);
        }
        break;
    }
    pthread_mutex_unlock(&s->mtx);
}

static int run_pending(ctx_t *c, lane_t *l, unsigned char *buf, ERL_NIF_TERM *decode)
{
    if (atomic_load_explicit(&l->pending, memory_order_relaxed) == NULL)
        return 0;
    /* taken whole, and served oldest first */
    sock_t *s = atomic_exchange(&l->pending, NULL), *first = NULL;
    while (s) {
        sock_t *next = s->pending_next;
        s->pending_next = first;
        first = s;
        s = next;
    }
    int n = 0;
    for (s = first; s; n++) {
        sock_t *next = s->pending_next;
        if (n > 0 && n % 4 == 0 && sys_now_ns() / 1000 - l->now_ms * 1000 > TURN_NS / 1000) {
            /* out of time: back on the list, in this order */
            for (; s; s = next) {
                next = s->pending_next;
                sock_t *head = atomic_load(&l->pending);
                do
                    s->pending_next = head;
                while (!atomic_compare_exchange_weak(&l->pending, &head, s));
            }
            break;
        }
        atomic_store(&s->pending, false);
        handle(c, l, s, 0, buf, decode);
        enif_release_resource(s);
        s = next;
    }
    return n;
}

static void count_events(lane_t *l, uint64_t n)
{
    count(l, S_WAITS, 1);
    if (n == 0)
        return;
    count(l, S_EVENTS, n);
    if (n > atomic_load_explicit(&l->stat[S_EV_MAX], memory_order_relaxed))
        atomic_store_explicit(&l->stat[S_EV_MAX], n, memory_order_relaxed);
    uint64_t min = atomic_load_explicit(&l->stat[S_EV_MIN], memory_order_relaxed);
    if (min == 0 || n < min)
        atomic_store_explicit(&l->stat[S_EV_MIN], n, memory_order_relaxed);
}

/* One turn: fetched events, pending sockets, relay timeouts. Answers how many
 * sockets it served, or {Served, [Ref]} when some wait for packets that only
 * erlang:decode_packet/3 can find. */
ERL_NIF_TERM lane_turn(ErlNifEnv *env, lane_t *l)
{
    unsigned char buf[READ_BUF];
    ERL_NIF_TERM decode = enif_make_list(env, 0);
    ctx_t c = {.env = env, .lane = l};
    int64_t t0 = sys_now_ns();
    int served = 0;
    if (l->bound)
        my_lane = l->index;
    l->now_ms = t0 / 1000000;
    count(l, S_TURNS, 1);
    if (l->ev_i >= l->ev_n) {
        lane_drain_dead(l);
        int n = sys_epoll_poll(l->epfd, l->evs, MAX_EVENTS);
        l->ev_i = 0;
        l->ev_n = n > 0 ? n : 0;
        count_events(l, (uint64_t)l->ev_n);
    }
    while (l->ev_i < l->ev_n) {
        struct epoll_event *e = &l->evs[l->ev_i++];
        handle(&c, l, (sock_t *)(uintptr_t)e->data.u64, e->events, buf, &decode);
        if ((++served & 3) == 0 && sys_now_ns() - t0 > TURN_NS)
            break;
    }
    if (l->ev_i >= l->ev_n) {
        bool adopted = atomic_load_explicit(&l->adopted, memory_order_relaxed);
        served += run_pending(&c, l, buf, &decode);
        if (adopted && atomic_load(&l->pending) == NULL)
            atomic_store(&l->adopted, false);
    }
    if (l->timed && l->now_ms / 1000 > l->wheel_s)
        relay_tick(&c, l, buf);
    if (served == 0) {
        count(l, S_EMPTY, 1);
    } else {
        int64_t used = (sys_now_ns() - t0) * 100 / SLICE_NS;
        enif_consume_timeslice(env, used < 1 ? 1 : used > 100 ? 100 : (int)used);
    }
    ERL_NIF_TERM n = enif_make_int(env, served);
    return enif_is_empty_list(env, decode) ? n : enif_make_tuple2(env, n, decode);
}

/* Hands the poll set to the VM. 0 and *wait_ms (-1 none) when the lane may
 * sleep, 1 when there is work after all, or a negative errno. */
int lane_sleep(ErlNifEnv *env, lane_t *l, int64_t *wait_ms)
{
    *wait_ms = -1;
    if (l->ev_i < l->ev_n)
        return 1;
    lane_drain_dead(l);
    atomic_store(&l->asleep, 1);
    /* Whoever pushed before this line saw us awake and sent nothing. */
    if (atomic_load(&l->pending) != NULL) {
        atomic_store(&l->asleep, 0);
        return 1;
    }
    if (l->timed)
        for (int64_t i = 1; i <= WHEEL; i++)
            if (l->wheel[(l->wheel_s + i) % WHEEL]) {
                int64_t at = (l->wheel_s + i + 1) * 1000 - sys_now_ms();
                *wait_ms = at < 1 ? 1 : at;
                break;
            }
    /* Since OTP 28 a descriptor that one process selects more than ten times in
     * a row moves to a poll set that schedulers look at when they have time:
     * under load the lane would sleep on for seconds. Another process in between
     * begins the count anew; it ignores the message, should one come. */
    ErlNifPid keeper;
    if (l->node->migrates && (++l->naps & 7) == 0 &&
        enif_whereis_pid(env, enif_make_atom(env, "erlane_lanes"), &keeper))
        (void)enif_select(env, (ErlNifEvent)l->epfd, ERL_NIF_SELECT_READ, l, &keeper,
                          am.undefined);
    int r = enif_select(env, (ErlNifEvent)l->epfd, ERL_NIF_SELECT_READ, l, NULL, am.undefined);
    if (r < 0) {
        atomic_store(&l->asleep, 0);
        return -EINVAL;
    }
    count(l, S_SLEEPS, 1);
    return 0;
}

lane_t *lane_open(ErlNifEnv *env, node_t *n, int index)
{
    (void)env;
    lane_t *l = enif_alloc_resource(lane_type, sizeof *l);
    if (l == NULL)
        return NULL;
    memset(l, 0, sizeof *l);
    l->node = n;
    l->index = index;
    pthread_mutex_init(&l->list_mtx, NULL);
    pthread_mutex_init(&l->turn_mtx, NULL);
    pthread_mutex_init(&l->pid_mtx, NULL);
    l->wheel_s = sys_now_ms() / 1000;
    l->epfd = sys_epoll_create();
    if (l->epfd < 0) {
        enif_release_resource(l);
        return NULL;
    }
    return l;
}

void lane_dtor(ErlNifEnv *env, void *obj)
{
    lane_t *l = obj;
    (void)env;
    lane_drain_dead(l);
    if (l->epfd >= 0 && !atomic_load(&l->stopped))
        sys_close(l->epfd); /* never handed to the VM */
    pthread_mutex_destroy(&l->list_mtx);
    pthread_mutex_destroy(&l->turn_mtx);
    pthread_mutex_destroy(&l->pid_mtx);
}

/* The VM does not look at the poll set any more: now it may be closed. */
void lane_stop_cb(ErlNifEnv *env, void *obj, ErlNifEvent fd, int direct)
{
    (void)env, (void)obj, (void)direct;
    sys_close(fd);
}
