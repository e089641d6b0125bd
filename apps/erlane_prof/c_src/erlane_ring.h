/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of a trace: events in by any thread, bytes out to one reader. No terms here; what a
 * word means is known to erlane_prof_nif.c.
 *
 * Who owns what
 *
 *   trace_t ---- is the memory of a resource. Held by its worker and guard, and by the VM for each
 *      |         process that is traced: so no thread is in it when it is freed.
 *      +-- ring_t 0..   one for each thread that has had an event, taken at its first one
 *      |      |         and never given back
 *      |      +-- record_t [size]
 *      +-- names        of the reader alone
 *
 *   A ring has one writer, its thread, and one reader, who holds `reading':
 *
 *      writer: stores the record, then head (release)     reader: loads head (acquire)
 *      writer: loads tail (acquire) when it seems full    reader: stores tail (release)
 *
 * States of a trace
 *
 *   OPEN ---- trace_close ----> CLOSED: events are neither kept nor counted, what is in the rings
 *                               is still to be read ---- the last holder goes ----> freed
 *
 * States of a ring
 *
 *   TAKING ---- no room ----> DROPPING: each event is counted, none is kept
 *      ^                         |
 *      +------- half empty ------+   so that a hole is in one place, not in every second call
 *
 * The order of events. Each ring is in order of time. A reader takes the time, then all heads, and
 * gives out only what is not younger than that time, oldest first. If a process has event 1 on one
 * thread and event 2 on another, 1 is in its ring before 2 is timed: so whoever sees 2 in time sees
 * 1. It comes out first, whatever the threads do meanwhile. */
#ifndef ERLANE_RING_H
#define ERLANE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kind {
    K_NAME = 1, /* only in what is given out: what a number of a function stands for */
    K_CALL,
    K_CALL_TOP, /* a call of which it was not asked where it returns to */
    K_RETURN_TO,
    K_IN,
    K_OUT,
    K_EXITED,
    K_SPAWNED,
    K_GC_BEGINS,
    K_GC_ENDS,
    K_SENT,
    K_RECEIVED,
    K_OTHER,
    /* Of a port. */
    K_TASK_BEGINS,
    K_TASK_ENDS,
    K_OPENED,
    K_CLOSED,
    K_PORT_OTHER
};

/* A function: two atoms and an arity; no module is none. */
typedef struct {
    uint32_t m, f;
    uint8_t a;
} fun_t;

typedef struct {
    uint64_t who, ns;
    uint32_t m, f, cm, cf; /* the function, and where it returns to */
    uint8_t kind, a, ca;
} record_t;

enum {
    MAX_RINGS = 1024,
    MIN_RECORDS = 16,
    EVENT_BYTES = 24,
    NAME_BYTES = 2200, /* of the longest name, with its number */
    READ_EVENTS = 8192,
    READ_NAMES = 400, /* a name costs as much as many events */
    NAMES = 1 << 17,
    MOST_NAMES = 100000
};

typedef struct {
    /* The writer's. */
    _Alignas(64) _Atomic uint64_t head;
    uint64_t tail_seen;
    bool dropping;
    _Atomic uint64_t lost;
    const void *owner;
    record_t *records;
    /* The reader's. */
    _Alignas(64) _Atomic uint64_t tail;
    uint64_t end;
} ring_t;

typedef struct {
    uint64_t mf;
    uint32_t a, number; /* 0: free */
} name_t;

typedef struct {
    uint64_t id;   /* of no other trace, ever: memory is used again */
    uint64_t size; /* of a ring, in records: a power of two */
    _Atomic bool closed;
    _Atomic uint32_t taken;
    _Atomic uint64_t homeless; /* events for which there was no ring, or that fit in no record */
    _Atomic(ring_t *) rings[MAX_RINGS];
    atomic_flag reading;
    /* The reader's. */
    name_t *names;
    uint32_t named;
    _Atomic uint64_t unnamed; /* events of functions beyond MOST_NAMES, which are lost */
} trace_t;

typedef struct {
    uint64_t events, lost;
    unsigned fill; /* of the fullest ring, in percent */
} trace_info_t;

/* The text of a name into out, which has room for NAME_BYTES; 0 if it has none. */
typedef size_t (*namer_t)(void *ctx, fun_t f, unsigned char *out);

/* Nanoseconds of a clock that all threads share and nobody sets. */
uint64_t trace_now(void);
/* With rings of so many bytes each; false if there is no memory. */
bool trace_init(trace_t *t, size_t bytes);
/* Nobody is in it any more. */
void trace_free(trace_t *t);
void trace_close(trace_t *t);
/* The only part that is called for each event. */
void trace_put(trace_t *t, enum kind kind, uint64_t who, fun_t f, fun_t caller);
/* An event that no record can hold. */
void trace_drop(trace_t *t);
void trace_info(trace_t *t, trace_info_t *info);
/* Gives out some bytes: 0 if there is nothing, -1 if somebody else is at it. cap is at least
 * 3 * NAME_BYTES. */
long trace_read(trace_t *t, unsigned char *out, size_t cap, namer_t namer, void *ctx);
#endif
