/* SPDX-License-Identifier: Apache-2.0 */
/* Life of a socket: see the drawing in erlane_sock.h. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "erlane_sock.h"

/* Copied straight into the receiver's message: one allocation less than with a
 * message environment. What the poller's heap keeps is its next collection's. */
void ctx_send(ctx_t *c, const ErlNifPid *to, ERL_NIF_TERM msg)
{
    enif_send(c->env, to, NULL, msg);
}

ERL_NIF_TERM sock_term(ErlNifEnv *env, sock_t *s)
{
    return enif_make_tuple3(env, am.inet, am.module, enif_make_resource(env, s));
}

void send_async(ctx_t *c, sock_t *s, const ErlNifPid *to, uint64_t ticket, ERL_NIF_TERM what)
{
    ErlNifEnv *m = c->env;
    ctx_send(c, to,
             enif_make_tuple4(m, am.async, enif_make_resource(m, s), enif_make_uint64(m, ticket),
                              what));
}

static void set_defaults(sock_t *s)
{
    s->opt[OPT_DELIVER] = 1;
    s->opt[OPT_LINE_DELIMITER] = '\n';
    s->opt[OPT_BUFFER] = s->lane->node->buffer;
    s->opt[OPT_EXIT_ON_CLOSE] = 1;
    s->opt[OPT_HIGH_WATERMARK] = 8192;
    s->opt[OPT_LOW_WATERMARK] = 4096;
    s->opt[OPT_SEND_TIMEOUT] = -1;
    s->opt[OPT_READ_AHEAD] = 1;
    s->opt[OPT_HIGH_MSGQ] = 8192;
    s->opt[OPT_LOW_MSGQ] = 4096;
}

/* A new socket around an open descriptor, with one reference for the caller's
 * term and one because it is open. NULL without memory; fd stays the caller's. */
sock_t *sock_new(lane_t *l, int fd, int family, int state)
{
    sock_t *s = enif_alloc_resource(sock_type, sizeof *s);
    if (s == NULL)
        return NULL;
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->mtx, NULL);
    s->fd = fd;
    s->file = -1;
    s->family = (uint8_t)family;
    s->state = (uint8_t)state;
    s->readable = true; /* unknown: the first read tries */
    /* Ancillary data ends a read of a Unix socket early: short is not empty. */
    s->hup = family == 0;
    s->lane = l;
    enif_keep_resource(l);
    set_defaults(s);
    enif_keep_resource(s);
    lane_link(s);
    return s;
}

void sock_inherit(sock_t *s, const inherit_t *from)
{
    memcpy(s->opt, from->opt, sizeof s->opt);
    if (s->opt[OPT_BUFFER_SET])
        s->opt[OPT_BUFFER_SET] = BUFFER_INHERITED;
    s->linger0 = from->linger0;
    s->lingers = from->lingers;
    s->priority = from->priority;
    if (s->priority)
        (void)sys_setsockopt(s->fd, SOL_SOCKET, SO_PRIORITY, &s->priority, sizeof s->priority);
}

/* The lane watches the owner from its next turn on: most short connections are
 * handed over and closed before, and then nobody need be monitored at all. A
 * process that is dead by then is found dead. */
void sock_own(ctx_t *c, sock_t *s, const ErlNifPid *pid)
{
    s->owner = *pid;
    s->owned = true;
    s->monitored = false;
    lane_push(c, s->lane, s);
}

void sock_disown(ctx_t *c, sock_t *s)
{
    if (s->monitored)
        enif_demonitor_process(c->env, s, &s->mon);
    s->owned = s->monitored = false;
}

int sock_register(sock_t *s)
{
    if (s->registered || s->fd < 0 || s->moving)
        return 0;
    int r = sys_epoll_add(s->lane->epfd, s->fd, (uint64_t)(uintptr_t)s);
    s->registered = r == 0;
    return r;
}

size_t sock_queued(const sock_t *s) { return s->q ? enif_ioq_size(s->q) : 0; }

void sock_notify_reader(ctx_t *c, sock_t *s, ERL_NIF_TERM what)
{
    if (s->reader_ticket && !s->told) {
        s->told = true; /* once, however many edges come before it looks */
        send_async(c, s, &s->reader, s->reader_ticket, what);
    }
}

/* One waiter is woken for one edge; it wakes the next if more may be there. */
void sock_wake_acceptor(ctx_t *c, sock_t *s)
{
    waiter_t *w = s->waiters;
    if (w && !w->woken) {
        w->woken = true;
        send_async(c, s, &w->pid, w->ticket, am.ready);
    }
}

waiter_t *sock_wait(sock_t *s, const ErlNifPid *pid)
{
    waiter_t *w = enif_alloc(sizeof *w), **end = &s->waiters;
    if (w == NULL)
        return NULL;
    memset(w, 0, sizeof *w);
    w->pid = *pid;
    w->ticket = ++s->ticket;
    while (*end)
        end = &(*end)->next;
    *end = w;
    return w;
}

/* Removes a waiter; false when it is gone, that is, has been answered. */
bool sock_unwait(ctx_t *c, sock_t *s, uint64_t ticket)
{
    for (waiter_t **p = &s->waiters, *w; (w = *p); p = &w->next)
        if (w->ticket == ticket) {
            *p = w->next;
            if (s->state == ST_LISTENING) {
                enif_demonitor_process(c->env, s, &w->mon);
                if (s->readable)
                    sock_wake_acceptor(c, s);
            }
            enif_free(w);
            return true;
        }
    return false;
}

/* Answers those senders (and closers) whose condition holds; all of them when
 * the socket closes. */
void sock_wake_senders(ctx_t *c, sock_t *s, ERL_NIF_TERM what)
{
    size_t queued = sock_queued(s);
    bool all = what != am.ok;
    for (waiter_t **p = &s->waiters, *w; (w = *p);) {
        if (all || (!w->file && queued == 0) ||
            (!w->file && !w->empty && queued <= (size_t)s->opt[OPT_LOW_WATERMARK])) {
            *p = w->next;
            send_async(c, s, &w->pid, w->ticket, what);
            enif_free(w);
        } else {
            p = &w->next;
        }
    }
}

/* The kernel has room again and a sendfile is running. */
void sock_room(ctx_t *c, sock_t *s)
{
    s->out_edge = true;
    for (waiter_t **p = &s->waiters, *w; (w = *p); p = &w->next)
        if (w->file) {
            *p = w->next;
            send_async(c, s, &w->pid, w->ticket, am.ok);
            enif_free(w);
            return;
        }
}

static void tell_watcher(ctx_t *c, sock_t *s, ERL_NIF_TERM why)
{
    ErlNifPid server;
    if (!s->watched || !enif_whereis_pid(c->env, enif_make_atom(c->env, "erlane_monitor"), &server))
        return;
    ErlNifEnv *m = c->env;
    ctx_send(c, &server,
             enif_make_tuple3(m, enif_make_atom(m, "socket_closed"), enif_make_resource(m, s),
                              why));
}

/* Closes the descriptor, wakes whoever waits, frees the buffers. Once. */
void sock_close(ctx_t *c, sock_t *s, ERL_NIF_TERM why)
{
    if (s->fd < 0)
        return;
    bool listening = s->state == ST_LISTENING;
    s->state = ST_CLOSED;
    sock_notify_reader(c, s, am.closed);
    s->reader_ticket = 0;
    if (listening)
        for (waiter_t *w; (w = s->waiters);) {
            s->waiters = w->next;
            enif_demonitor_process(c->env, s, &w->mon);
            if (!w->woken) /* else it is on its way to look */
                send_async(c, s, &w->pid, w->ticket, am.closed);
            enif_free(w);
        }
    else
        sock_wake_senders(c, s, am.closed);
    if (s->q) {
        enif_ioq_destroy(s->q);
        s->q = NULL;
    }
    in_free(&s->in);
    sock_disown(c, s);
    tell_watcher(c, s, why);
    s->active = A_FALSE;
    if (s->lingers) { /* erlane_tcp:close has waited; close(2) must not */
        struct linger off = {0, 0};
        (void)sys_setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
    }
    if (s->registered)
        sys_epoll_del(s->lane->epfd, s->fd);
    sys_close(s->fd);
    s->fd = -1;
    if (s->file >= 0)
        sys_close(s->file);
    s->file = -1;
    s->moving = false;
    bool registered = s->registered;
    s->registered = false;
    if (registered)
        lane_bury(s->lane, s);
    /* After that: a lane that stops waits for its list to be empty, and then
     * buries no more. */
    lane_unlink(s);
    if (!registered)
        enif_release_resource(s); /* the caller still holds a term's reference */
}

/* Called by the VM when the last reference is gone: the socket is closed. */
void sock_dtor(ErlNifEnv *env, void *obj)
{
    sock_t *s = obj;
    (void)env;
    pthread_mutex_destroy(&s->mtx);
    enif_release_resource(s->lane);
}

static void owner_died(ctx_t *c, sock_t *s);

/* Poller only. */
void sock_watch_owner(ctx_t *c, sock_t *s)
{
    if (enif_monitor_process(c->env, s, &s->owner, &s->mon) == 0)
        s->monitored = true;
    else
        owner_died(c, s);
}

/* Queued output goes out first; a process of the lane waits for that. */
void sock_orphaned(ctx_t *c, sock_t *s)
{
    lane_t *l = s->lane;
    s->orphan = true;
    pthread_mutex_lock(&l->pid_mtx);
    bool has = l->has_poller;
    ErlNifPid poller = l->poller;
    pthread_mutex_unlock(&l->pid_mtx);
    if (has)
        ctx_send(c, &poller, enif_make_tuple2(c->env, am.orphan, sock_term(c->env, s)));
    else
        sock_close(c, s, am.normal);
}

static void owner_died(ctx_t *c, sock_t *s)
{
    s->owned = s->monitored = false;
    s->active = A_FALSE;
    if (sock_queued(s) == 0 || s->linger0 || s->sendfile) {
        sock_close(c, s, am.normal);
        return;
    }
    sock_orphaned(c, s);
}

void sock_down(ErlNifEnv *env, void *obj, ErlNifPid *pid, ErlNifMonitor *mon)
{
    sock_t *s = obj;
    ctx_t c = {.env = env};
    (void)pid;
    pthread_mutex_lock(&s->mtx);
    if (s->fd >= 0 && s->monitored && enif_compare_monitors(mon, &s->mon) == 0) {
        owner_died(&c, s);
    } else if (s->state == ST_LISTENING) {
        for (waiter_t **p = &s->waiters, *w; (w = *p); p = &w->next)
            if (enif_compare_monitors(mon, &w->mon) == 0) {
                *p = w->next;
                enif_free(w);
                /* it may have been woken for a connection that still waits */
                if (s->readable)
                    sock_wake_acceptor(&c, s);
                break;
            }
    }
    pthread_mutex_unlock(&s->mtx);
}
