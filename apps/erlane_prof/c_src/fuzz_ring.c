/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer target: rings of a few records, written to and read in any order, by this thread and by
 * others one after the other. What is read is what was put in, in the order in which it was, and
 * each event is read or counted. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "erlane_ring.h"

enum { THREADS = 3, MOST = 1 << 12, CAP = 3 * NAME_BYTES + 64 * EVENT_BYTES };
enum { KINDS = K_PORT_OTHER - K_CALL + 1 };

static struct {
    record_t want[MOST]; /* what was put in, in order; who is its number */
    bool seen[MOST];
    uint64_t put, lost, got, last;
    uint32_t names;
    fun_t name[MOST];
    bool no_names;
} s;

static size_t namer(void *ctx, fun_t f, unsigned char *out) {
    (void)ctx;
    if (s.no_names)
        return 0;
    memcpy(out, &f, sizeof f);
    size_t n = sizeof f + f.a % 64 * 32;
    memset(out + sizeof f, 0, n - sizeof f);
    return n;
}

static uint64_t get(const unsigned char *p, int n) {
    uint64_t r = 0;
    while (n-- > 0)
        r = r << 8 | *p++;
    return r;
}

static bool same(uint64_t number, uint32_t m, uint32_t f, uint8_t a) {
    if (number == 0)
        return m == 0;
    const fun_t *n = &s.name[number];
    return number <= s.names && n->m == m && n->f == f && n->a == a;
}

static void check(const unsigned char *p, size_t len) {
    for (const unsigned char *end = p + len; p < end;) {
        if (p[0] == K_NAME) {
            if (get(p + 1, 3) != ++s.names)
                abort();
            memcpy(&s.name[s.names], p + 8, sizeof(fun_t));
            p += 8 + get(p + 4, 4);
            continue;
        }
        uint64_t who = get(p + 8, 8), ns = get(p + 16, 8);
        const record_t *e = &s.want[who];
        if (who == 0 || who > s.put || s.seen[who] || ns < s.last || p[0] != e->kind ||
            !same(get(p + 1, 3), e->m, e->f, e->a) || !same(get(p + 4, 4), e->cm, e->cf, e->ca))
            abort();
        s.seen[who] = true;
        s.last = ns;
        s.got++;
        p += EVENT_BYTES;
    }
}

static trace_t *trace;

static void put_one(uint8_t b) {
    if (s.put + 1 >= MOST)
        return;
    record_t *e = &s.want[++s.put];
    *e = (record_t){.kind = (uint8_t)(K_CALL + b % KINDS), .m = b % 5, .f = b % 7, .a = b};
    if (b & 1)
        e->cm = 1 + b % 3, e->cf = b % 2, e->ca = b;
    if (!e->m)
        e->f = e->a = 0;
    trace_put(trace, e->kind, s.put, (fun_t){e->m, e->f, e->a}, (fun_t){e->cm, e->cf, e->ca});
}

typedef struct {
    const uint8_t *p;
    size_t n;
} run_t;

static void *run(void *arg) {
    const run_t *r = arg;
    for (size_t i = 0; i < r->n; i++)
        put_one(r->p[i]);
    return NULL;
}

static long read_some(unsigned char *out) {
    long n = trace_read(trace, out, CAP, namer, NULL);
    if (n < 0 || n > CAP)
        abort();
    check(out, (size_t)n);
    return n;
}

static void account(void) {
    trace_info_t i;
    trace_info(trace, &i);
    if (i.fill > 100 || i.events < s.got || i.events > s.put)
        abort();
    s.lost = i.lost;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
    memset(&s, 0, sizeof s);
    trace = calloc(1, sizeof *trace);
    unsigned char *out = malloc(CAP);
    if (!trace || !out || !trace_init(trace, n ? p[0] * 40 : 0))
        abort();
    int threads = 0;
    for (size_t i = 1; i < n;) {
        run_t r = {p + i + 1, p[i] >> 2};
        r.n = r.n < n - i - 1 ? r.n : n - i - 1;
        pthread_t id;
        switch (p[i] & 3) {
        case 0:
            read_some(out);
            i++;
            continue;
        case 1:
            if (threads++ < THREADS && pthread_create(&id, NULL, run, &r) == 0)
                pthread_join(id, NULL);
            break;
        case 2:
            s.no_names = r.n == 63;
            break;
        default:
            run(&r);
        }
        account();
        i += 1 + r.n;
    }
    /* Not until it is filled to 0 percent: a few events of many are that. */
    while (read_some(out) > 0)
        ;
    account();
    if (s.got + s.lost != s.put)
        abort();
    trace_close(trace);
    put_one(1);
    s.put--;
    account();
    if (s.got + s.lost != s.put)
        abort();
    trace_free(trace);
    free(trace);
    free(out);
    return 0;
}
