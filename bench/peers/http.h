/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP of the two hello servers: finds the requests in what has come. The answer has the
 * same bytes as that of the Erlang contestants.
 */
#ifndef HTTP_H
#define HTTP_H

#include "peer.h"

#define HTTP_REPLY "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello world!"
#define HTTP_REPLY_SIZE (sizeof HTTP_REPLY - 1)
#define HTTP_MAX_HEAD 16384
/* Answers that one send can carry. A client that sends more at once is cut off. */
#define HTTP_MAX_BATCH 256

struct http {
    char *part; /* the head that has not come whole yet; NULL nearly always */
    size_t size;
};

static char http_replies[HTTP_MAX_BATCH * HTTP_REPLY_SIZE];

static inline void http_init(void) {
    for (size_t i = 0; i < HTTP_MAX_BATCH; i++)
        memcpy(http_replies + i * HTTP_REPLY_SIZE, HTTP_REPLY, HTTP_REPLY_SIZE);
}

static inline void http_reset(struct http *h) {
    free(h->part);
    h->part = NULL;
    h->size = 0;
}

/*
 * Takes n bytes that came. Gives the number of requests now complete, and sets *last when one
 * of them asks for the connection to be closed. Negative: a head that is too long, or too many
 * requests at once.
 */
static inline int http_feed(struct http *h, const char *data, size_t n, int *last) {
    static const char mark[] = "Connection: close";
    const char *at = data;
    const char *end;
    char *head;
    int found = 0;

    if (h->part != NULL) {
        if (h->size + n > HTTP_MAX_HEAD)
            return -1;
        h->part = need(realloc(h->part, h->size + n));
        memcpy(h->part + h->size, data, n);
        at = h->part;
        n += h->size;
    }
    *last = 0;
    while (!*last && (end = memmem(at, n, "\r\n\r\n", 4)) != NULL) {
        if (++found > HTTP_MAX_BATCH)
            return -1;
        end += 4;
        *last = memmem(at, (size_t)(end - at), mark, sizeof mark - 1) != NULL;
        n -= (size_t)(end - at);
        at = end;
    }
    if (n == 0 || *last) {
        http_reset(h);
        return found;
    }
    if (n > HTTP_MAX_HEAD)
        return -1;
    head = need(malloc(n));
    memcpy(head, at, n);
    free(h->part);
    h->part = head;
    h->size = n;
    return found;
}

#endif
