/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: reader raw|ws PORT CONNECTIONS BYTES STALLED
 *
 * Many sockets that are written to and never ask. BYTES is the size of a message; with `ws' each
 * comes as one binary WebSocket frame, after a handshake. Every STALLEDth connection never reads
 * (0: all read). A message begins with its number and the time of its sending, both 64 bits,
 * little endian, the time in nanoseconds of the clock of the day.
 *
 * Prints `ready CONNECTIONS', then obeys lines on standard input, each answered by one line:
 *
 *   reset           forgets what came                    -> reset
 *   report N MS     waits for N messages, at most MS     -> report NAME VALUE ...
 *
 * `missing' and `twice' are judged for each connection by the numbers; `last' is the time in
 * which a message had come to all connections that read.
 */
#include "hist.h"
#include "peer.h"

#include <sys/epoll.h>
#include <sys/prctl.h>

#define HEAD 16           /* number and time */
#define WS_HEAD 4         /* a server's frame of less than 64 KB */
#define MAX_BYTES 65535
#define RING 65536        /* messages that may be under way */
#define SMALL_BUFFER 4096 /* of a connection that never reads */
#define BUFFER (1 << 18)

struct conn {
    int fd;
    uint32_t have;  /* bytes of a message that is not whole yet */
    uint64_t next;  /* the number that is to come; 0: any */
    uint8_t *part;
};

struct message {
    uint64_t number;
    uint32_t count;
    uint64_t last_ns;
};

static int ws;
static uint32_t conns_n, reading, stalled, bytes, frame;
static struct conn *conns;
static struct message ring[RING];
static struct hist each, last;
static uint64_t received, missing, twice, closed;
static uint64_t wanted, deadline; /* of the report that is waited for */
static int waiting;
static int ep;
static uint8_t buffer[BUFFER];

static uint64_t day_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t little(const uint8_t *p) {
    uint64_t v = 0;

    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* One whole message, without the frame. */
static void came(struct conn *c, const uint8_t *p, uint64_t now) {
    uint64_t number = little(p), sent = little(p + 8);
    uint64_t took = now > sent ? now - sent : 0;
    struct message *m = &ring[number % RING];

    received++;
    if (c->next != 0 && number > c->next)
        missing += number - c->next;
    if (c->next != 0 && number < c->next)
        twice++;
    else
        c->next = number + 1;
    hist_add(&each, took);
    if (m->number != number)
        *m = (struct message){.number = number};
    if (took > m->last_ns)
        m->last_ns = took;
    if (++m->count == reading)
        hist_add(&last, m->last_ns);
}

/* Bytes of the head of a frame; 0: not all there. */
static uint32_t head(const uint8_t *p, uint32_t have) {
    uint32_t length, size;

    if (!ws)
        return have < 1 ? 0 : frame - bytes;
    if (have < 2)
        return 0;
    size = p[1] < 126 ? 2 : WS_HEAD;
    if (have < size)
        return 0;
    length = size == 2 ? p[1] : (uint32_t)p[2] << 8 | p[3];
    if (p[0] != 0x82 || length != bytes)
        die("not a frame of %u bytes: %02x %02x", bytes, p[0], p[1]);
    return size;
}

/* Messages of one read; the rest is kept for the next. */
static void read_messages(struct conn *c, uint32_t n) {
    uint64_t now = day_ns();
    const uint8_t *p = buffer, *end = buffer + n;

    while (p < end) {
        if (c->have > 0 || (uint32_t)(end - p) < frame) {
            uint32_t take = frame - c->have;

            if (take > (uint32_t)(end - p))
                take = (uint32_t)(end - p);
            memcpy(c->part + c->have, p, take);
            c->have += take;
            p += take;
            if (c->have == frame) {
                came(c, c->part + head(c->part, frame), now);
                c->have = 0;
            }
        } else {
            came(c, p + head(p, frame), now);
            p += frame;
        }
    }
}

static void readable(struct conn *c) {
    ssize_t n = recv(c->fd, buffer, sizeof buffer, MSG_DONTWAIT);

    if (n > 0) {
        read_messages(c, (uint32_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close(c->fd);
        c->fd = -1;
        closed++;
    }
}

/* The answer to a handshake, and nothing that comes after it. */
static void handshake(int fd) {
    static const char request[] =
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    char answer[1024];
    size_t have = 0;

    if (send(fd, request, sizeof request - 1, 0) != (ssize_t)sizeof request - 1)
        die("handshake: %s", strerror(errno));
    do {
        if (have == sizeof answer - 1 || recv(fd, answer + have, 1, 0) != 1)
            die("no answer to the handshake");
        answer[++have] = '\0';
    } while (have < 4 || strcmp(answer + have - 4, "\r\n\r\n") != 0);
    if (strncmp(answer, "HTTP/1.1 101", 12) != 0)
        die("handshake refused: %.60s", answer);
}

static void open_all(const char *port) {
    struct sockaddr_in to = address_of("127.0.0.1", port);
    struct timeval limit = {.tv_sec = 20};
    int small = SMALL_BUFFER;

    conns = need(calloc(conns_n, sizeof *conns));
    for (uint32_t i = 0; i < conns_n; i++) {
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = &conns[i]};
        int lazy = stalled != 0 && i % stalled == 0;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0)
            die("socket: %s", strerror(errno));
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (lazy)
            setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0)
            die("connect: %s", strerror(errno));
        if (ws)
            handshake(fd);
        conns[i].fd = fd;
        conns[i].part = need(malloc(frame));
        if (lazy)
            continue;
        reading++;
        if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) < 0)
            die("epoll_ctl: %s", strerror(errno));
    }
}

static void reset(void) {
    memset(&each, 0, sizeof each);
    memset(&last, 0, sizeof last);
    memset(ring, 0, sizeof ring);
    received = missing = twice = 0;
    for (uint32_t i = 0; i < conns_n; i++)
        conns[i].next = 0;
    printf("reset\n");
    fflush(stdout);
}

static double us(uint64_t ns) {
    return (double)ns / 1000;
}

static void report(void) {
    waiting = 0;
    printf("report received %llu missing %llu twice %llu closed %llu whole %llu p50_us %.1f "
           "p99_us %.1f max_us %.1f last_p50_us %.1f last_p99_us %.1f last_max_us %.1f\n",
           (unsigned long long)received, (unsigned long long)missing, (unsigned long long)twice,
           (unsigned long long)closed, (unsigned long long)last.count,
           us(hist_quantile(&each, 0.5)), us(hist_quantile(&each, 0.99)), us(each.max),
           us(hist_quantile(&last, 0.5)), us(hist_quantile(&last, 0.99)), us(last.max));
    fflush(stdout);
}

static void command(void) {
    static char line[256];
    static size_t have;
    unsigned long long n, ms;
    ssize_t got = read(0, line + have, sizeof line - 1 - have);
    char *end;

    if (got <= 0)
        exit(0);
    have += (size_t)got;
    line[have] = '\0';
    while ((end = strchr(line, '\n')) != NULL) {
        *end = '\0';
        if (strcmp(line, "reset") == 0) {
            reset();
        } else if (sscanf(line, "report %llu %llu", &n, &ms) == 2) {
            wanted = n;
            deadline = now_ns() + ms * 1000000u;
            waiting = 1;
        } else {
            die("no command: %s", line);
        }
        have -= (size_t)(end + 1 - line);
        memmove(line, end + 1, have + 1);
    }
}

int main(int argc, char **argv) {
    struct epoll_event events[512], in = {.events = EPOLLIN, .data.ptr = NULL};
    int n;

    if (argc != 6 || (strcmp(argv[1], "raw") != 0 && strcmp(argv[1], "ws") != 0))
        die("usage: reader raw|ws PORT CONNECTIONS BYTES STALLED");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    peer_start();
    ws = strcmp(argv[1], "ws") == 0;
    conns_n = (uint32_t)number("connections", argv[3], 1, 100000);
    bytes = (uint32_t)number("bytes", argv[4], HEAD, MAX_BYTES);
    stalled = (uint32_t)number("stalled", argv[5], 0, 1000000);
    frame = bytes + (ws ? (bytes < 126 ? 2 : WS_HEAD) : 0);
    if ((ep = epoll_create1(EPOLL_CLOEXEC)) < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, 0, &in) < 0)
        die("epoll: %s", strerror(errno));
    open_all(argv[2]);
    printf("ready %u\n", reading);
    fflush(stdout);
    for (;;) {
        n = epoll_wait(ep, events, 512, waiting ? 20 : -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                command();
            else
                readable(events[i].data.ptr);
        }
        if (waiting && (received >= wanted || now_ns() >= deadline))
            report();
    }
}
