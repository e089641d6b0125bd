/* SPDX-License-Identifier: Apache-2.0 */
/* The rings of a trace; erlane_ring.h draws them. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "erlane_ring.h"

static _Atomic uint64_t traces;

/* The ring that this thread had last: nearly always there is one trace. */
static _Thread_local struct {
    uint64_t trace;
    ring_t *ring;
} mine;

uint64_t trace_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

bool trace_init(trace_t *t, size_t bytes) {
    memset(t, 0, sizeof *t);
    t->id = atomic_fetch_add(&traces, 1) + 1;
    for (t->size = MIN_RECORDS; 2 * t->size * sizeof(record_t) <= bytes;)
        t->size *= 2;
    atomic_flag_clear(&t->reading);
    t->names = calloc(NAMES, sizeof *t->names);
    return t->names != NULL;
}

void trace_free(trace_t *t) {
    uint32_t n = atomic_load(&t->taken);
    for (uint32_t i = 0; i < n && i < MAX_RINGS; i++) {
        ring_t *r = atomic_load(&t->rings[i]);
        if (r)
            free(r->records);
        free(r);
    }
    free(t->names);
}

void trace_close(trace_t *t) {
    atomic_store(&t->closed, true);
}

/* Writing ----------------------------------------------------------------- */

static ring_t *new_ring(const trace_t *t) {
    ring_t *r = aligned_alloc(_Alignof(ring_t), sizeof *r);
    if (!r)
        return NULL;
    memset(r, 0, sizeof *r);
    r->owner = &mine;
    r->records = malloc(t->size * sizeof *r->records);
    if (!r->records) {
        free(r);
        return NULL;
    }
    return r;
}

/* The first event of this thread in this trace, or the first after one in another. */
static ring_t *find_ring(trace_t *t) {
    uint32_t n = atomic_load(&t->taken);
    ring_t *r = NULL;
    for (uint32_t i = 0; i < n && i < MAX_RINGS && !r; i++) {
        r = atomic_load(&t->rings[i]);
        if (r && r->owner != &mine)
            r = NULL;
    }
    if (!r && n < MAX_RINGS && (r = new_ring(t))) {
        uint32_t i = atomic_fetch_add(&t->taken, 1);
        if (i >= MAX_RINGS) {
            free(r->records);
            free(r);
            return NULL;
        }
        /* To the reader, who passes over an empty place. */
        atomic_store(&t->rings[i], r);
    }
    if (r) {
        mine.trace = t->id;
        mine.ring = r;
    }
    return r;
}

/* There seems to be no room. */
static bool room(const trace_t *t, ring_t *r, uint64_t head) {
    r->tail_seen = atomic_load_explicit(&r->tail, memory_order_acquire);
    uint64_t used = head - r->tail_seen;
    r->dropping = r->dropping ? used > t->size / 2 : used >= t->size;
    return !r->dropping;
}

static void count(_Atomic uint64_t *n) {
    /* One writer: no need for an instruction that locks. */
    atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static ring_t *ring_of(trace_t *t) {
    return mine.trace == t->id ? mine.ring : find_ring(t);
}

void trace_put(trace_t *t, enum kind kind, uint64_t who, fun_t f, fun_t caller) {
    if (atomic_load_explicit(&t->closed, memory_order_relaxed))
        return;
    ring_t *r = ring_of(t);
    if (!r) {
        atomic_fetch_add(&t->homeless, 1);
        return;
    }
    uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    if ((r->dropping || head - r->tail_seen >= t->size) && !room(t, r, head)) {
        count(&r->lost);
        return;
    }
    record_t *e = &r->records[head & (t->size - 1)];
    e->who = who;
    e->ns = trace_now();
    e->m = f.m;
    e->f = f.f;
    e->cm = caller.m;
    e->cf = caller.f;
    e->kind = (uint8_t)kind;
    e->a = f.a;
    e->ca = caller.a;
    /* To trace_read: what is before head is whole. */
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

void trace_drop(trace_t *t) {
    if (!atomic_load_explicit(&t->closed, memory_order_relaxed))
        atomic_fetch_add(&t->homeless, 1);
}

/* Reading ----------------------------------------------------------------- */

void trace_info(trace_t *t, trace_info_t *info) {
    uint32_t n = atomic_load(&t->taken);
    uint64_t most = 0;
    info->events = 0;
    info->lost = atomic_load(&t->homeless) + atomic_load(&t->unnamed);
    for (uint32_t i = 0; i < n && i < MAX_RINGS; i++) {
        ring_t *r = atomic_load(&t->rings[i]);
        if (!r)
            continue;
        /* The tail first: it is never beyond a head that is read later. */
        uint64_t tail = atomic_load(&r->tail), head = atomic_load(&r->head);
        info->events += head;
        info->lost += atomic_load_explicit(&r->lost, memory_order_relaxed);
        most = head - tail > most ? head - tail : most;
    }
    info->fill = (unsigned)(100 * most / t->size);
}

static void put(unsigned char *out, uint64_t n, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, n >>= 8)
        out[i] = (unsigned char)n;
}

typedef struct {
    trace_t *t;
    unsigned char *out;
    size_t used, cap;
    int events, names;
    namer_t namer;
    void *ctx;
} reading_t;

/* The number of a function, with its name before its first use; 0 if there are too many. */
static uint32_t number(reading_t *g, fun_t f) {
    uint64_t mf = (uint64_t)f.m << 32 | f.f;
    uint64_t h = (mf ^ mf >> 29 ^ f.a) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = (uint32_t)(h >> 40);; i++) {
        name_t *n = &g->t->names[i % NAMES];
        if (n->number && (n->mf != mf || n->a != f.a))
            continue;
        if (n->number || g->t->named >= MOST_NAMES)
            return n->number;
        unsigned char *out = g->out + g->used;
        size_t len = g->namer(g->ctx, f, out + 8);
        if (len == 0)
            return 0;
        *n = (name_t){.mf = mf, .a = f.a, .number = ++g->t->named};
        out[0] = K_NAME;
        put(out + 1, n->number, 3);
        put(out + 4, len, 4);
        g->used += 8 + len;
        g->names++;
        return n->number;
    }
}

static void give(reading_t *g, const record_t *e) {
    uint32_t f = 0, c = 0;
    if ((e->m && !(f = number(g, (fun_t){e->m, e->f, e->a}))) ||
        (e->cm && !(c = number(g, (fun_t){e->cm, e->cf, e->ca})))) {
        count(&g->t->unnamed);
        return;
    }
    unsigned char *out = g->out + g->used;
    out[0] = e->kind;
    put(out + 1, f, 3);
    put(out + 4, c, 4);
    put(out + 8, e->who, 8);
    put(out + 16, e->ns, 8);
    g->used += EVENT_BYTES;
    g->events++;
}

static bool more(const reading_t *g) {
    return g->events < READ_EVENTS && g->names < READ_NAMES &&
           g->cap - g->used >= EVENT_BYTES + 2 * NAME_BYTES;
}

static const record_t *first(const trace_t *t, const ring_t *r, uint64_t tail, uint64_t until) {
    const record_t *e = &r->records[tail & (t->size - 1)];
    return tail < r->end && e->ns <= until ? e : NULL;
}

/* The ring whose first event is the oldest of all, and the time of the oldest of the others. */
static ring_t *oldest(const trace_t *t, uint32_t n, uint64_t until, uint64_t *next) {
    ring_t *best = NULL;
    uint64_t least = UINT64_MAX;
    *next = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        ring_t *r = atomic_load(&t->rings[i]);
        const record_t *e =
            r ? first(t, r, atomic_load_explicit(&r->tail, memory_order_relaxed), until) : NULL;
        if (!e)
            continue;
        if (e->ns < least) {
            *next = least;
            least = e->ns;
            best = r;
        } else if (e->ns < *next) {
            *next = e->ns;
        }
    }
    return best;
}

static void merge(reading_t *g) {
    trace_t *t = g->t;
    uint64_t until = trace_now(), next;
    uint32_t n = atomic_load(&t->taken);
    n = n < MAX_RINGS ? n : MAX_RINGS;
    for (uint32_t i = 0; i < n; i++) {
        ring_t *r = atomic_load(&t->rings[i]);
        if (r)
            r->end = atomic_load_explicit(&r->head, memory_order_acquire);
    }
    for (ring_t *r; more(g) && (r = oldest(t, n, until, &next));) {
        uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
        const record_t *e;
        while (more(g) && (e = first(t, r, tail, until)) && e->ns <= next) {
            give(g, e);
            tail++;
        }
        /* To the writer: the places before tail are free. */
        atomic_store_explicit(&r->tail, tail, memory_order_release);
    }
}

long trace_read(trace_t *t, unsigned char *out, size_t cap, namer_t namer, void *ctx) {
    if (atomic_flag_test_and_set_explicit(&t->reading, memory_order_acquire))
        return -1;
    reading_t g = {.t = t, .out = out, .cap = cap, .namer = namer, .ctx = ctx};
    merge(&g);
    atomic_flag_clear_explicit(&t->reading, memory_order_release);
    return (long)g.used;
}
