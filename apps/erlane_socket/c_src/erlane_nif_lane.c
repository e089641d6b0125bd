/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: what their pollers and the front door call. */

#include "erlane_glue.h"

/* Lanes ------------------------------------------------------------------ */

static bool get_lane(ErlNifEnv *env, ERL_NIF_TERM t, lane_t **l)
{
    return enif_get_resource(env, t, lane_type, (void **)l);
}

/* lane_make(Index) -> ok: opens the lane if need be, without a poller as yet. */
NIF(n_lane_make)
{
    node_t *n = node(env);
    int i;
    if (argc != 1 || !enif_get_int(env, argv[0], &i) || i < 1 || i > n->lanes_n)
        BADARG;
    pthread_mutex_lock(&n->mtx);
    lane_t *l = atomic_load(&n->lanes[i]);
    if (l == NULL && (l = lane_open(env, n, i)) != NULL)
        atomic_store(&n->lanes[i], l); /* the table's reference */
    pthread_mutex_unlock(&n->mtx);
    return l ? am.ok : error(env, am.enomem);
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
    bool adopt = l != NULL;
    if (l == NULL && (l = lane_open(env, n, i)) != NULL)
        atomic_store(&n->lanes[i], l); /* the table's reference */
    pthread_mutex_unlock(&n->mtx);
    if (l == NULL)
        return error(env, am.enomem);
    pthread_mutex_lock(&l->pid_mtx);
    l->poller = self;
    l->has_poller = true;
    pthread_mutex_unlock(&l->pid_mtx);
    if (adopt) {
        ctx_t c = {.env = env};
        lane_adopt(&c, l);
    }
    return ok(env, enif_make_resource(env, l));
}

/* A lane has one poller: the process that opened it last. */
static bool polls(lane_t *l, const ErlNifPid *self)
{
    pthread_mutex_lock(&l->pid_mtx);
    bool yes = l->has_poller && enif_compare_pids(self, &l->poller) == 0;
    pthread_mutex_unlock(&l->pid_mtx);
    return yes && !atomic_load(&l->stopped);
}

/* lane_turn(Lane) -> as lane_turn in erlane_lane.c | gone: not its poller. */
NIF(n_lane_turn)
{
    lane_t *l;
    ErlNifPid self;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self))
        BADARG;
    return polls(l, &self) ? lane_turn(env, l) : am.gone;
}

NIF(n_lane_sleep)
{
    lane_t *l;
    ErlNifPid self;
    int64_t wait;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self))
        BADARG;
    if (!polls(l, &self))
        return am.gone;
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

/* lane_close(Lane) -> more | ok: closes its sockets, a slice a call, and at last
 * gives the poll set back. */
NIF(n_lane_close)
{
    lane_t *l;
    node_t *n = node(env);
    ErlNifPid self;
    if (argc != 1 || !get_lane(env, argv[0], &l) || !get_pid(env, &self))
        BADARG;
    pthread_mutex_lock(&l->pid_mtx);
    bool mine = enif_compare_pids(&self, &l->poller) == 0;
    pthread_mutex_unlock(&l->pid_mtx);
    if (!mine || l->epfd < 0) /* whoever polls it now closes it */
        return am.ok;
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
