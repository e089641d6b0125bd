/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram of times: ranges that double, each cut into 64 equal parts, so a value read from
 * it is at most 1.6 % too low.
 */
#ifndef HIST_H
#define HIST_H

#include <stdint.h>
#include <string.h>

#define HIST_PARTS 64
#define HIST_BITS 6
#define HIST_SIZE ((64 - HIST_BITS + 1) * HIST_PARTS)

struct hist {
    uint64_t count;
    uint64_t max;
    uint64_t cell[HIST_SIZE];
};

static inline void hist_add(struct hist *h, uint64_t v) {
    unsigned shift = v < 2 * HIST_PARTS ? 0 : 63 - (unsigned)__builtin_clzll(v) - HIST_BITS;

    h->cell[shift * HIST_PARTS + (v >> shift)]++;
    h->count++;
    if (v > h->max)
        h->max = v;
}

/* The value below which a share q (0 to 1) of all lies; 0 when there is none. */
static inline uint64_t hist_quantile(const struct hist *h, double q) {
    uint64_t rank = (uint64_t)(q * (double)h->count);
    uint64_t seen = 0;

    for (unsigned i = 0; i < HIST_SIZE; i++) {
        seen += h->cell[i];
        if (seen > rank) {
            unsigned shift = i < 2 * HIST_PARTS ? 0 : i / HIST_PARTS - 1;
            return (uint64_t)(i - shift * HIST_PARTS) << shift;
        }
    }
    return h->max;
}

#endif
