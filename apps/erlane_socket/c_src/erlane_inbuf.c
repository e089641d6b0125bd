/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes read and not yet delivered, and where a packet of them ends. s->mtx is held. */
#include <string.h>

#include "erlane_sock.h"

/* Input buffer ----------------------------------------------------------- */

void in_free(inbuf_t *in)
{
    if (in->used)
        enif_release_binary(&in->bin);
    in->used = false;
    in->start = in->end = 0;
}

/* Room for n bytes after the end, at once for `reserve` bytes in all. */
bool in_room(inbuf_t *in, size_t n, size_t reserve)
{
    size_t have = in->end - in->start;
    size_t cap = have + n > reserve ? have + n : reserve;
    if (!in->used) {
        if (!enif_alloc_binary(cap, &in->bin))
            return false;
        in->used = true;
        return true;
    }
    if (in->bin.size - in->end >= n && in->bin.size - in->start >= reserve)
        return true;
    memmove(in->bin.data, in->bin.data + in->start, have);
    in->start = 0;
    in->end = have;
    if (in->bin.size >= cap)
        return true;
    if (cap < 2 * in->bin.size && reserve <= have + n)
        cap = 2 * in->bin.size; /* grows by doubling when the end is not known */
    return enif_realloc_binary(&in->bin, cap);
}

bool in_append(inbuf_t *in, const void *p, size_t n, size_t reserve)
{
    if (n == 0)
        return true;
    if (!in_room(in, n, reserve))
        return false;
    memcpy(in->bin.data + in->end, p, n);
    in->end += n;
    return true;
}

bool in_push_front(inbuf_t *in, const void *p, size_t n)
{
    if (n == 0)
        return true;
    if (!in_room(in, n, 0))
        return false;
    memmove(in->bin.data + in->start + n, in->bin.data + in->start, in->end - in->start);
    memcpy(in->bin.data + in->start, p, n);
    in->end += n;
    return true;
}

void in_drop(sock_t *s, size_t n)
{
    s->in.start += n;
    s->version++;
    s->need = 0;
    if (s->in.start >= s->in.end)
        in_free(&s->in);
}

/* Packets ---------------------------------------------------------------- */

int64_t pkt_length(const sock_t *s, const unsigned char *p, size_t n, size_t *need)
{
    uint64_t max = (uint32_t)s->opt[OPT_PACKET_SIZE], h, body;
    *need = 0;
    switch (s->opt[OPT_PACKET]) {
    case PB_RAW:
        return (int64_t)n;
    case PB_LINE: {
        size_t limit = (size_t)s->opt[OPT_BUFFER];
        const unsigned char *e = memchr(p, s->opt[OPT_LINE_DELIMITER], n);
        if (e == NULL && max > 0 && n > max)
            return -1;
        if (e == NULL) /* a line longer than the buffer is cut */
            return n >= limit ? (int64_t)limit : 0;
        uint64_t len = (uint64_t)(e - p) + 1;
        if (max > 0 && len > max)
            return -1;
        return (int64_t)(len > limit ? limit : len);
    }
    case PB_1:
        h = 1;
        break;
    case PB_2:
        h = 2;
        break;
    default:
        h = 4;
    }
    if (n < h)
        return 0;
    body = h == 1   ? p[0]
           : h == 2 ? (uint64_t)p[0] << 8 | p[1]
                    : (uint64_t)p[0] << 24 | (uint64_t)p[1] << 16 | (uint64_t)p[2] << 8 | p[3];
    if ((max > 0 && body > max) || body > MAX_RECV)
        return -1;
    *need = h + body;
    return h + body <= n ? (int64_t)(h + body) : 0;
}
