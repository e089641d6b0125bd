/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: load MODE HOST PORT [-c CONNECTIONS] [-d MS] [-n REQUESTS] [-s BYTES] [-r RATE] [-e] [-i]
 *
 *   http    keep-alive: each connection has one request under way at any time
 *   short   connect, request, answer, close
 *   echo    sends -s BYTES, waits until they are back
 *   rate    -r requests a second in all, whatever the answers do; http, or echo with -e
 *   hold    one request on each connection, then they stay open until standard input ends
 *
 * One line of JSON for each round. Without -i there is one round of -d milliseconds; with -i
 * each line on standard input is the length of a round in milliseconds, and connections stay
 * open between rounds. A round ends early after -n requests.
 *
 * The times of `rate` are counted from the moment a request was due, not from when it was
 * sent: a server that stalls is charged for every request that had to wait.
 */
#include "hist.h"
#include "peer.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#define GRACE_NS 2000000000u /* for the answers still under way at the end of a round */
#define CONNECT_SECONDS 10

enum mode { HTTP, SHORT, ECHO, RATE, HOLD };

/* fd < 0: to be opened again by the next request. */
struct conn {
    int fd;
    int busy;       /* a request is under way */
    size_t sent;    /* of the request */
    size_t got;     /* of the answer */
    uint64_t start; /* the request was sent, or in rate was due, at this time */
    uint64_t due;   /* rate: requests due so far in this round */
    uint64_t done;  /* rate: requests answered so far in this round */
};

static enum mode mode;
static int echo; /* the protocol is echo, not HTTP */
static struct sockaddr_in address;
static struct conn *conns;
static uint32_t conns_n = 1;
static double rate = 1000;
static const char *request;
static size_t request_size;
static size_t reply_size;
static int ep;
static char buffer[1 << 18];

/* Of the round that runs. */
static struct hist hist;
static uint64_t errors, started, limit, round_start, round_end;
static uint32_t under_way;

static void advance(struct conn *c);

/* The connections that every round begins with are made one after the other, blocking. */
static int connect_blocking(void) {
    struct timeval t = {.tv_sec = CONNECT_SECONDS};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        die("socket: %s", strerror(errno));
    nodelay(fd);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        die("connect: %s", strerror(errno));
    return fd;
}

/* One exchange, blocking; what came is in the buffer. Gives its size. */
static size_t exchange(int fd, size_t expected) {
    size_t have = 0, sent = 0;
    ssize_t n;
    char *end, *field;

    while (sent < request_size || expected == 0 || have < expected) {
        if (sent < request_size) {
            n = send(fd, request + sent, request_size - sent, 0);
            if (n <= 0)
                die("send: %s", strerror(errno));
            sent += (size_t)n;
            continue;
        }
        n = recv(fd, buffer + have % sizeof buffer, sizeof buffer - have % sizeof buffer, 0);
        if (n <= 0)
            die("no answer: %s", n == 0 ? "connection closed" : strerror(errno));
        have += (size_t)n;
        if (expected != 0)
            continue;
        if (have == sizeof buffer)
            die("the answer is too long");
        buffer[have] = '\0';
        end = strstr(buffer, "\r\n\r\n");
        if (end == NULL)
            continue;
        field = strcasestr(buffer, "\r\nContent-Length:");
        if (strncmp(buffer, "HTTP/1.1 200", 12) != 0 || field == NULL || field > end)
            die("not an answer with status 200 and a length: %.60s", buffer);
        expected = (size_t)(end + 4 - buffer) + strtoul(field + 17, NULL, 10);
    }
    if (have != expected)
        die("the answer has %zu bytes, not %zu", have, expected);
    return have;
}

static void watch(struct conn *c) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};

    if (epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev) < 0)
        die("epoll_ctl: %s", strerror(errno));
}

static void unblock(int fd) {
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        die("fcntl: %s", strerror(errno));
}

/* Asks once what an answer looks like, so that a round need only count bytes. */
static void learn(void) {
    int fd = connect_blocking();

    reply_size = exchange(fd, echo ? request_size : 0);
    close(fd);
}

static void open_all(void) {
    for (uint32_t i = 0; i < conns_n; i++) {
        conns[i].fd = connect_blocking();
        exchange(conns[i].fd, reply_size);
        unblock(conns[i].fd);
        watch(&conns[i]);
    }
}

static void close_conn(struct conn *c) {
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

/* -1: could not even begin. The first edge says when it is connected. */
static int reopen(struct conn *c) {
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -1;
    nodelay(c->fd);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) {
        close_conn(c);
        return -1;
    }
    watch(c);
    return 0;
}

static void failed(struct conn *c) {
    close_conn(c);
    errors++;
    if (c->busy) {
        c->busy = 0;
        under_way--;
        if (mode == RATE)
            c->done++;
    }
}

/* Begins the next request if one is to begin. In rate its time is that of the plan. */
static void begin(struct conn *c) {
    uint64_t now = now_ns();

    if (mode == RATE) {
        if (c->done >= c->due)
            return;
        c->start = round_start + (uint64_t)((double)(c->done * conns_n + (uint64_t)(c - conns)) *
                                            1e9 / rate);
    } else {
        if (now >= round_end || started >= limit)
            return;
        c->start = now;
    }
    started++;
    c->busy = 1;
    under_way++;
    c->sent = c->got = 0;
    if (c->fd < 0) {
        if (reopen(c) < 0)
            failed(c);
        return; /* the edge that says "connected" goes on */
    }
    advance(c);
}

static void answered(struct conn *c) {
    hist_add(&hist, now_ns() - c->start);
    c->busy = 0;
    under_way--;
    c->done++;
    if (mode == SHORT)
        close_conn(c);
}

/* 0: all that can be sent is sent, -1: the connection is broken. */
static int send_some(struct conn *c) {
    ssize_t n;

    while (c->sent < request_size) {
        n = send(c->fd, request + c->sent, request_size - c->sent, 0);
        if (n < 0)
            return errno == EAGAIN || errno == ENOTCONN ? 0 : -1;
        c->sent += (size_t)n;
    }
    return 0;
}

/* 1: answered, 0: wait for an edge, -1: broken. In short the answer ends with the connection. */
static int receive_some(struct conn *c) {
    ssize_t n;

    for (;;) {
        n = recv(c->fd, buffer, sizeof buffer, 0);
        if (n < 0)
            return errno == EAGAIN || errno == ENOTCONN ? 0 : -1;
        if (n == 0)
            return mode == SHORT && c->got == reply_size ? 1 : -1;
        if (!echo && c->got == 0 && n >= 12 && memcmp(buffer, "HTTP/1.1 200", 12) != 0)
            return -1;
        c->got += (size_t)n;
        if (!c->busy || c->got > reply_size)
            return -1;
        if (mode != SHORT && c->got == reply_size)
            return 1;
        if (mode != SHORT && (size_t)n < sizeof buffer)
            return 0;
    }
}

/* Sends without reading first: there is nothing to read before a request is out. */
static void advance(struct conn *c) {
    if (send_some(c) < 0)
        failed(c);
}

static void on_event(struct conn *c, uint32_t happened) {
    int r;

    if (c->fd < 0)
        return;
    if (c->busy && c->sent < request_size && send_some(c) < 0) {
        failed(c);
    } else if (happened & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) {
        r = receive_some(c);
        if (r < 0)
            failed(c);
        else if (r > 0)
            answered(c);
    }
    if (!c->busy)
        begin(c);
}

/* Everything due by now becomes due at its connection. Gives the time of the next one. */
static uint64_t plan(uint64_t *next) {
    uint64_t now = now_ns(), at;
    struct conn *c;

    for (;;) {
        at = round_start + (uint64_t)((double)*next * 1e9 / rate);
        if (at >= round_end || *next >= limit)
            return UINT64_MAX;
        if (at > now)
            return at;
        c = &conns[(*next)++ % conns_n];
        c->due++;
        if (!c->busy)
            begin(c);
    }
}

static int waiting(uint64_t now, uint64_t next) {
    if (now >= round_end + GRACE_NS)
        return 0;
    return under_way > 0 || next != UINT64_MAX;
}

/* Sleeps until something happens; short of a planned send it spins, as timers come late. */
static void wait_events(uint64_t now, uint64_t next) {
    struct epoll_event events[512];
    uint64_t until = round_end + GRACE_NS;
    struct timespec t;
    int n;

    if (next < until)
        until = next > now + 80000 ? next - 80000 : now;
    until = until > now ? until - now : 0;
    t = (struct timespec){(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    n = epoll_pwait2(ep, events, 512, &t, NULL);
    if (n < 0 && errno != EINTR)
        die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < n; i++)
        on_event(events[i].data.ptr, events[i].events);
}

static void run_round(uint64_t ms) {
    uint64_t next = 0, now, planned = UINT64_MAX;
    double seconds;

    memset(&hist, 0, sizeof hist);
    errors = started = 0;
    alarm((unsigned)(ms / 1000 + 30));
    round_start = now_ns();
    round_end = round_start + ms * 1000000u;
    for (uint32_t i = 0; i < conns_n; i++) {
        conns[i].due = conns[i].done = 0;
        if (mode != RATE)
            begin(&conns[i]);
    }
    for (;;) {
        if (mode == RATE)
            planned = plan(&next);
        now = now_ns();
        if (!waiting(now, planned))
            break;
        wait_events(now, planned);
    }
    seconds = (double)(now_ns() - round_start) / 1e9;
    /* What has no answer by now is an error, and so is what was due but never sent. */
    for (uint32_t i = 0; i < conns_n; i++) {
        if (conns[i].busy)
            failed(&conns[i]);
        if (mode == RATE)
            errors += conns[i].due - conns[i].done;
    }
    printf("{\"requests\":%lu,\"errors\":%lu,\"seconds\":%.6f,\"rps\":%.1f,"
           "\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}\n",
           hist.count, errors, seconds, (double)hist.count / seconds,
           (double)hist_quantile(&hist, 0.5) / 1e3, (double)hist_quantile(&hist, 0.99) / 1e3,
           (double)hist.max / 1e3);
    fflush(stdout);
    alarm(PEER_MAX_SECONDS);
}

static void rounds_from_input(void) {
    char line[64];

    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        run_round((uint64_t)number("round", line, 1, 3600000));
    }
}

static void hold(void) {
    printf("{\"connected\":%u}\n", conns_n);
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

static enum mode mode_of(const char *name) {
    static const char *names[] = {"http", "short", "echo", "rate", "hold"};

    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return (enum mode)i;
    die("MODE is http, short, echo, rate or hold, not %s", name);
    return HTTP;
}

static void make_request(size_t payload) {
    static const char get[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const char last[] = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    char *data;

    if (!echo) {
        request = mode == SHORT ? last : get;
        request_size = mode == SHORT ? sizeof last - 1 : sizeof get - 1;
        return;
    }
    data = need(malloc(payload));
    for (size_t i = 0; i < payload; i++)
        data[i] = (char)('a' + i % 26);
    request = data;
    request_size = payload;
}

int main(int argc, char **argv) {
    uint64_t ms = 1000;
    size_t payload = 100;
    int option, interactive = 0;

    if (argc < 4)
        die("usage: load MODE HOST PORT [-c CONNECTIONS] [-d MS] [-n REQUESTS] [-s BYTES] "
            "[-r RATE] [-e] [-i]");
    mode = mode_of(argv[1]);
    echo = mode == ECHO;
    address = address_of(argv[2], argv[3]);
    limit = UINT64_MAX;
    optind = 4;
    while ((option = getopt(argc, argv, "c:d:n:s:r:ei")) != -1) {
        switch (option) {
        case 'c': conns_n = (uint32_t)number("-c", optarg, 1, 100000); break;
        case 'd': ms = (uint64_t)number("-d", optarg, 1, 3600000); break;
        case 'n': limit = (uint64_t)number("-n", optarg, 1, 1000000000); break;
        case 's': payload = (size_t)number("-s", optarg, 1, 1 << 26); break;
        case 'r': rate = (double)number("-r", optarg, 1, 10000000); break;
        case 'e': echo = 1; break;
        case 'i': interactive = 1; break;
        default: return 2;
        }
    }
    if (optind != argc)
        die("%s: unexpected argument", argv[optind]);
    if (mode == SHORT && echo)
        die("short speaks HTTP only");
    peer_start();
    prctl(PR_SET_TIMERSLACK, 1);
    make_request(payload);
    ep = epoll_create1(EPOLL_CLOEXEC);
    conns = need(calloc(conns_n, sizeof *conns));
    for (uint32_t i = 0; i < conns_n; i++)
        conns[i].fd = -1;
    learn();
    if (mode != SHORT)
        open_all();
    if (interactive) {
        printf("ready 0\n");
        fflush(stdout);
    }
    if (mode == HOLD)
        hold();
    else if (interactive)
        rounds_from_input();
    else
        run_round(ms);
    return 0;
}
