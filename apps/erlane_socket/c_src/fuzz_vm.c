/* SPDX-License-Identifier: Apache-2.0 */
/* Resources, processes, monitors and queues of the VM that is not there. One
 * thread; messages go nowhere. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fuzz_enif.h"

struct enif_resource_type_t {
    const char *name;
    ErlNifResourceTypeInit init;
};
typedef struct {
    ErlNifResourceType *type;
    int64_t refs; /* two words, so that the object is aligned as malloc aligns */
} res_t;
typedef struct mon {
    struct mon *next;
    void *obj;
    unsigned pid;
    ErlNifMonitor id;
} mon_t;
typedef struct piece {
    struct piece *next;
    size_t n, at;
    char data[];
} piece_t;
struct erts_io_queue {
    piece_t *first;
    size_t size;
    SysIOVec iov[4];
};

#define ENV __attribute__((unused)) ErlNifEnv *env

static mon_t *monitors;
static bool dead[FZ_PIDS];
static unsigned self_pid;
static int resources;
static void *priv_data, *selected;

static res_t *R(void *obj) { return (res_t *)obj - 1; }

/* Calls ------------------------------------------------------------------- */

const ErlNifFunc *fz_load(ErlNifEntry *(*init)(void), int *count)
{
    ErlNifEntry *e = init();
    ERL_NIF_TERM info = enif_make_tuple3(NULL, fz_int(2), fz_int(1460), fz_int(28));
    if (e->load(NULL, &priv_data, info) != 0)
        abort();
    *count = e->num_of_funcs;
    return e->funcs;
}

ERL_NIF_TERM fz_call(unsigned pid, const ErlNifFunc *f, const ERL_NIF_TERM *argv)
{
    self_pid = pid % FZ_PIDS;
    ERL_NIF_TERM t = f->fptr(NULL, (int)f->arity, argv);
    if (t == 0)
        abort();
    return t;
}

void *enif_priv_data(ENV) { return priv_data; }
void *enif_alloc(size_t n) { return malloc(n); }
void enif_free(void *p) { free(p); }

int enif_consume_timeslice(ENV, int percent)
{
    if (percent < 1 || percent > 100)
        abort();
    return 0;
}

/* Resources --------------------------------------------------------------- */

ErlNifResourceType *enif_open_resource_type_x(ENV, const char *name,
                                              const ErlNifResourceTypeInit *init,
                                              ErlNifResourceFlags flags, ErlNifResourceFlags *tried)
{
    (void)flags, (void)tried;
    ErlNifResourceType *t = calloc(1, sizeof *t);
    t->name = name;
    t->init = *init;
    return t;
}

void *enif_alloc_resource(ErlNifResourceType *type, size_t n)
{
    res_t *r = malloc(sizeof *r + n);
    r->type = type;
    r->refs = 1;
    resources++;
    return r + 1;
}

void enif_keep_resource(void *obj) { R(obj)->refs++; }

static void forget_monitors(void *obj)
{
    for (mon_t **p = &monitors, *m; (m = *p);)
        if (m->obj == obj) {
            *p = m->next;
            free(m);
        } else {
            p = &m->next;
        }
}

void enif_release_resource(void *obj)
{
    if (--R(obj)->refs > 0)
        return;
    forget_monitors(obj);
    R(obj)->type->init.dtor(NULL, obj);
    resources--;
    free(R(obj));
}

ERL_NIF_TERM enif_make_resource(ENV, void *obj) { return fz_res(obj); }

int enif_get_resource(ENV, ERL_NIF_TERM t, ErlNifResourceType *type, void **obj)
{
    if (fz_obj(t) == NULL || R(fz_obj(t))->type != type)
        return 0;
    *obj = fz_obj(t);
    return 1;
}

const char *fz_type_of(ERL_NIF_TERM t) { return fz_obj(t) ? R(fz_obj(t))->type->name : NULL; }

int fz_reset(void)
{
    fz_free_terms();
    return resources;
}

/* The VM keeps what it polls for until it has called stop. */
int enif_select(ENV, ErlNifEvent fd, enum ErlNifSelectFlags mode, void *obj, const ErlNifPid *pid,
                ERL_NIF_TERM ref)
{
    (void)pid, (void)ref;
    if (mode & ERL_NIF_SELECT_STOP) {
        R(obj)->type->init.stop(NULL, obj, fd, 1);
        if (selected == obj) {
            selected = NULL;
            enif_release_resource(obj);
        }
    } else if (selected != obj) {
        if (selected)
            enif_release_resource(selected);
        selected = obj;
        enif_keep_resource(obj);
    }
    return 0;
}

/* Processes --------------------------------------------------------------- */

ErlNifPid *enif_self(ENV, ErlNifPid *pid)
{
    pid->pid = fz_pid(self_pid);
    return pid;
}

int enif_get_local_pid(ENV, ERL_NIF_TERM t, ErlNifPid *pid)
{
    pid->pid = t;
    return fz_kind_of(t) == FZ_PID;
}

/* Only pids are compared. */
int enif_compare(ERL_NIF_TERM a, ERL_NIF_TERM b) { return (int)fz_pid_of(a) - (int)fz_pid_of(b); }

int enif_is_process_alive(ENV, ErlNifPid *pid) { return !dead[fz_pid_of(pid->pid)]; }

int enif_whereis_pid(ENV, ERL_NIF_TERM name, ErlNifPid *pid)
{
    (void)name;
    pid->pid = fz_pid(0);
    return 1;
}

int enif_send(ENV, const ErlNifPid *to, ErlNifEnv *msg_env, ERL_NIF_TERM msg)
{
    (void)msg_env;
    if (msg == 0)
        abort();
    return !dead[fz_pid_of(to->pid)];
}

int enif_monitor_process(ENV, void *obj, const ErlNifPid *pid, ErlNifMonitor *mon)
{
    static uint64_t last;
    if (dead[fz_pid_of(pid->pid)])
        return 1;
    mon_t *m = calloc(1, sizeof *m);
    m->obj = obj;
    m->pid = fz_pid_of(pid->pid);
    last++;
    memcpy(&m->id, &last, sizeof last);
    if (mon)
        *mon = m->id;
    m->next = monitors;
    monitors = m;
    return 0;
}

int enif_compare_monitors(const ErlNifMonitor *a, const ErlNifMonitor *b)
{
    return memcmp(a, b, sizeof(uint64_t));
}

int enif_demonitor_process(ENV, void *obj, const ErlNifMonitor *mon)
{
    for (mon_t **p = &monitors, *m; (m = *p); p = &m->next)
        if (m->obj == obj && enif_compare_monitors(&m->id, mon) == 0) {
            *p = m->next;
            free(m);
            return 0;
        }
    return 1;
}

void fz_kill(unsigned pid)
{
    dead[pid %= FZ_PIDS] = true;
    for (mon_t *m = monitors; m;) {
        if (m->pid != pid) {
            m = m->next;
            continue;
        }
        ErlNifPid p = {.pid = fz_pid(pid)};
        ErlNifMonitor id = m->id;
        void *obj = m->obj;
        enif_keep_resource(obj);
        enif_demonitor_process(NULL, obj, &id);
        R(obj)->type->init.down(NULL, obj, &p, &id);
        enif_release_resource(obj);
        m = monitors; /* the callback may have changed the list */
    }
}

void fz_revive(void) { memset(dead, 0, sizeof dead); }

/* Queues ------------------------------------------------------------------ */

ErlNifIOQueue *enif_ioq_create(ErlNifIOQueueOpts opts)
{
    (void)opts;
    return calloc(1, sizeof(ErlNifIOQueue));
}

static void put(ErlNifIOQueue *q, const void *p, size_t n)
{
    piece_t *e = malloc(sizeof *e + n), **end = &q->first;
    e->next = NULL;
    e->n = n;
    e->at = 0;
    memcpy(e->data, p, n);
    while (*end)
        end = &(*end)->next;
    *end = e;
    q->size += n;
}

int enif_ioq_enq_binary(ErlNifIOQueue *q, ErlNifBinary *b, size_t skip)
{
    put(q, b->data + skip, b->size - skip);
    enif_release_binary(b);
    return 1;
}

int enif_ioq_enqv(ErlNifIOQueue *q, ErlNifIOVec *v, size_t skip)
{
    if (skip >= v->size)
        return 0;
    for (int i = 0; i < v->iovcnt; i++) {
        size_t n = v->iov[i].iov_len, s = skip < n ? skip : n;
        skip -= s;
        if (n > s)
            put(q, (char *)v->iov[i].iov_base + s, n - s);
    }
    return 1;
}

size_t enif_ioq_size(ErlNifIOQueue *q) { return q->size; }

int enif_ioq_deq(ErlNifIOQueue *q, size_t n, size_t *left)
{
    if (n > q->size)
        abort();
    q->size -= n;
    for (piece_t *e; n > 0 && (e = q->first);) {
        size_t k = n < e->n - e->at ? n : e->n - e->at;
        e->at += k;
        n -= k;
        if (e->at == e->n) {
            q->first = e->next;
            free(e);
        }
    }
    if (left)
        *left = q->size;
    return 1;
}

SysIOVec *enif_ioq_peek(ErlNifIOQueue *q, int *n)
{
    *n = 0;
    for (piece_t *e = q->first; e && *n < 4; e = e->next)
        q->iov[(*n)++] = (SysIOVec){e->data + e->at, e->n - e->at};
    return q->iov;
}

void enif_ioq_destroy(ErlNifIOQueue *q)
{
    enif_ioq_deq(q, q->size, NULL);
    free(q);
}

/* System calls that must stay on this machine and off its files (ld --wrap). */

int __real_connect(int fd, const struct sockaddr *a, socklen_t n);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t n);
int __wrap_connect(int fd, const struct sockaddr *a, socklen_t n)
{
    const struct sockaddr_in *in = (const void *)a;
    if (a->sa_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == 127)
        return __real_connect(fd, a, n);
    errno = ENETUNREACH;
    return -1;
}

int __real_bind(int fd, const struct sockaddr *a, socklen_t n);
int __wrap_bind(int fd, const struct sockaddr *a, socklen_t n);
int __wrap_bind(int fd, const struct sockaddr *a, socklen_t n)
{
    if (a->sa_family != AF_UNIX)
        return __real_bind(fd, a, n);
    errno = EACCES;
    return -1;
}

int __wrap_setns(int fd, int type);
int __wrap_setns(int fd, int type)
{
    (void)fd, (void)type;
    errno = EPERM;
    return -1;
}
