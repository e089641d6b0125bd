/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer target: a stream cut into pieces at any place gives the same
 * packets as the whole stream, through the input buffer of a socket. */
#include <stdlib.h>
#include <string.h>

#include "erlane_sock.h"
#include "fuzz_enif.h"

enum { MAX_PACKETS = 4096 };

typedef struct {
    size_t at[MAX_PACKETS]; /* ends of packets in the stream */
    int n;
    bool too_long;
} cuts_t;

static void whole(const sock_t *s, const unsigned char *p, size_t n, cuts_t *c)
{
    size_t at = 0, need;
    while (at < n && c->n < MAX_PACKETS) {
        /* a copy that ends where the stream ends: no byte beyond is looked at */
        unsigned char *d = malloc(n - at);
        memcpy(d, p + at, n - at);
        int64_t len = pkt_length(s, d, n - at, &need);
        free(d);
        if (len > (int64_t)(n - at))
            abort();
        c->too_long = len < 0;
        if (len <= 0)
            return;
        if (need != 0 && need != (size_t)len)
            abort();
        c->at[c->n++] = at += (size_t)len;
    }
}

/* Takes the whole packets out of the buffer; at is where its front belongs. */
static void take(sock_t *s, const unsigned char *stream, size_t *at, cuts_t *c, bool again)
{
    size_t need;
    while (s->in.used && s->in.end > s->in.start && c->n < MAX_PACKETS) {
        size_t have = s->in.end - s->in.start;
        int64_t len = pkt_length(s, s->in.bin.data + s->in.start, have, &need);
        c->too_long = len < 0;
        if (len <= 0)
            return;
        if (memcmp(s->in.bin.data + s->in.start, stream + *at, (size_t)len) != 0)
            abort();
        in_drop(s, (size_t)len);
        if (again) { /* as unrecv does: what is put back comes again */
            if (!in_push_front(&s->in, stream + *at, (size_t)len) ||
                s->in.end - s->in.start != have ||
                pkt_length(s, s->in.bin.data + s->in.start, have, &need) != len)
                abort();
            in_drop(s, (size_t)len);
        }
        c->at[c->n++] = *at += (size_t)len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t types[] = {PB_1, PB_2, PB_4, PB_LINE};
    static cuts_t a, b;
    static lane_t lane;
    fz_in in = {data, size};
    sock_t s;
    memset(&s, 0, sizeof s);
    s.lane = &lane;
    s.opt[OPT_PACKET] = types[fz_take(&in, 1) % 4];
    s.opt[OPT_PACKET_SIZE] = (int32_t)fz_take(&in, 1);
    s.opt[OPT_BUFFER] = 1 + (int32_t)fz_take(&in, 1);
    s.opt[OPT_LINE_DELIMITER] = '\n';
    unsigned seed = (unsigned)fz_take(&in, 2);
    /* A line both cut by the buffer and too long is either, as in gen_tcp: it
     * depends on how much of it has come. */
    if (s.opt[OPT_PACKET] == PB_LINE && s.opt[OPT_PACKET_SIZE] > 0)
        s.opt[OPT_BUFFER] += s.opt[OPT_PACKET_SIZE];
    a.n = b.n = 0;
    a.too_long = b.too_long = false;
    whole(&s, in.p, in.n, &a);
    size_t fed = 0, at = 0;
    while (fed < in.n && !b.too_long) {
        size_t step = seed % 4 == 0 ? 1 : 1 + (seed = seed * 1103515245u + 12345u) / 65536 % 40;
        step = step > in.n - fed ? in.n - fed : step;
        if (!in_append(&s.in, in.p + fed, step, seed % 3 ? 0 : step + seed % 100))
            abort();
        fed += step;
        take(&s, in.p, &at, &b, seed & 8);
    }
    in_free(&s.in);
    if (a.n < MAX_PACKETS && (a.too_long != b.too_long || a.n != b.n))
        abort();
    for (int i = 0; i < a.n && i < b.n; i++)
        if (a.at[i] != b.at[i])
            abort();
    fz_reset();
    return 0;
}
