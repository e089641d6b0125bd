/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: what their pollers and the front door call. */

#include "erlane_glue.h"

/* Lanes ------------------------------------------------------------------ */

static bool get_lane(ErlNifEnv *env, ERL_NIF_TERM t, lane_t **l)
{
    return enif_get_resource(env, t, lane_type, (void **)l);
}

/* lane_open(Index) -> {ok, Lane}: opens the lane if it is not open, without a
 * poller as yet. */
NIF(n_lane_open)
{
    node_t *n = node(env);
    int i;
    if (argc != 1 || !enif_get_int(env, argv[0], &i) || i < 1 || i > n->lanes_n)
        BADARG;
    pthread_mutex_lock(&n->mtx);
    lane_t *l = atomic_load(&n->lanes[i]);
    if (l == NULL && (l = lane_open(env, n, i)) != NULL)
        atomic_store(&n->lanes[i], l); /* the table's reference */
    ERL_NIF_TERM t = l ? ok(env, enif_make_resource(env, l)) : error(env, am.enomem);
    pthread_mutex_unlock(&n->mtx);
    return t;
}

/* lane_poll(Lane, Bound) -> ok | gone: the caller becomes the lane's poller,
 * and finds the poll set and the sockets as the one before has left them. That
 * one is woken, to learn of it. */
NIF(n_lane_poll)
{
    lane_t *l;
    ErlNifPid self;
    if (argc != 2 || !get_lane(env, argv[0], &l) || !get_pid(env, &self) ||
        (enif_compare(argv[1], am.true_) != 0 && enif_compare(argv[1], am.false_) != 0))
        BADARG;
    ctx_t c = {.env = env};
    pthread_mutex_lock(&l->turn_mtx);
    bool stopped = atomic_load(&l->stopped);
    if (!stopped) {
        if (l->has_poller && enif_compare_pids(&self, &l->poller) != 0)
            ctx_send(&c, &l->poller, am.wake);
        pthread_mutex_lock(&l->pid_mtx);
        l->poller = self;
        l->has_poller = true;
        pthread_mutex_unlock(&l->pid_mtx);
        l->bound = enif_compare(argv[1], am.true_) == 0;
        atomic_store(&l->asleep, 0);
        lane_adopt(&c, l);
    }
    pthread_mutex_unlock(&l->turn_mtx);
    return stopped ? am.gone : am.ok;
}

/* A lane has one poller. turn_mtx is held. */
static bool polls(lane_t *l, const ErlNifPid *self)
{
    return l->has_poller && enif_compare_pids(self, &l->poller) == 0 &&
           !atomic_load(&l->stopped);
}

/* lane_turn(Lane) -> as lane_turn in erlane_lane.c | gone: not its poller. */
NIF(n_lane_turn)
{
    lane_t *l;
    ErlNifPid self;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self))
        BADARG;
    pthread_mutex_lock(&l->turn_mtx);
    ERL_NIF_TERM t = polls(l, &self) ? lane_turn(env, l) : am.gone;
    pthread_mutex_unlock(&l->turn_mtx);
    return t;
}

/* lane_sleep(Lane) -> busy | Milliseconds | infinity | gone | {error, Posix} */
NIF(n_lane_sleep)
{
    lane_t *l;
    ErlNifPid self;
    int64_t wait = -1;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self))
        BADARG;
    pthread_mutex_lock(&l->turn_mtx);
    bool mine = polls(l, &self);
    int r = mine ? lane_sleep(env, l, &wait) : 0;
    pthread_mutex_unlock(&l->turn_mtx);
    if (!mine)
        return am.gone;
    if (r < 0)
        return posix(env, r);
    return r == 1 ? am.busy : wait < 0 ? am.infinity : enif_make_int64(env, wait);
}

/* lane_woke(Lane): the poller is up again; nobody needs to wake it now. From
 * one that has been displaced it means nothing: its successor may be asleep. */
NIF(n_lane_woke)
{
    lane_t *l;
    ErlNifPid self;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self))
        BADARG;
    pthread_mutex_lock(&l->turn_mtx);
    if (polls(l, &self)) {
        atomic_store(&l->asleep, 0);
        count(l, S_WAKES, 1);
    }
    pthread_mutex_unlock(&l->turn_mtx);
    return am.ok;
}

/* turn_mtx is held. */
static ERL_NIF_TERM close_lane(ErlNifEnv *env, lane_t *l)
{
    node_t *n = node(env);
    atomic_store(&l->stopped, true);
    pthread_mutex_lock(&n->mtx);
    if (atomic_load(&n->lanes[l->index]) == l)
        atomic_store(&n->lanes[l->index], NULL);
    pthread_mutex_unlock(&n->mtx);
    ctx_t c = {.env = env, .lane = l};
    l->ev_i = l->ev_n = 0;
    for (int slice = 64;; slice--) {
        pthread_mutex_lock(&l->list_mtx);
        sock_t *s = l->list;
        if (s)
            enif_keep_resource(s);
        pthread_mutex_unlock(&l->list_mtx);
        if (s == NULL)
            break;
        if (slice == 0) {
            enif_release_resource(s);
            return am.more;
        }
        pthread_mutex_lock(&s->mtx);
        relay_t *r = s->relay;
        if (r)
            enif_keep_resource(r);
        if (!r && s->lane == l)
            sock_close(&c, s, am.normal);
        pthread_mutex_unlock(&s->mtx);
        if (r) {
            int was = 0; /* cut short: a reset, unless a clean end was asked for */
            atomic_compare_exchange_strong(&r->stop, &was, 2);
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
    l->epfd = -1;
    enif_release_resource(l); /* the table's reference */
    return am.ok;
}

/* lane_close(Lane) -> more | ok: closes its sockets, a slice a call, and at last
 * gives the poll set back. Any process; the lane's poller finds it gone. */
NIF(n_lane_close)
{
    lane_t *l;
    if (argc != 1 || !get_lane(env, argv[0], &l))
        BADARG;
    pthread_mutex_lock(&l->turn_mtx);
    ERL_NIF_TERM t = l->epfd < 0 ? am.ok : close_lane(env, l);
    pthread_mutex_unlock(&l->turn_mtx);
    return t;
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
