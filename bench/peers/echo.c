/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: echo PORT [SIZE]
 *
 * The upstream of proxy runs. Reads messages of SIZE bytes whole and writes each back at once;
 * without SIZE it writes back whatever one read gave.
 */
#include "peer.h"

#include <sys/epoll.h>

#define CHUNK 65536

struct conn {
    char *data; /* made with the first byte, kept until the connection ends */
    size_t have;
    size_t sent;
    int sending;
};

static struct conn *conns;
static size_t conns_size;
static size_t message; /* 0: whatever comes */

static void drop(int fd) {
    free(conns[fd].data);
    memset(&conns[fd], 0, sizeof conns[fd]);
    close(fd);
}

/* 1: go on with this connection now, 0: wait for an edge, -1: over. */
static int read_some(int fd, struct conn *c) {
    size_t size = message ? message : CHUNK;
    ssize_t n;

    if (c->data == NULL)
        c->data = need(malloc(size));
    n = recv(fd, c->data + c->have, size - c->have, 0);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return -1;
    c->have += (size_t)n;
    if (message == 0 || c->have == message)
        c->sending = 1;
    return 1;
}

static int write_some(int fd, struct conn *c) {
    ssize_t n = send(fd, c->data + c->sent, c->have - c->sent, 0);

    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n < 0)
        return -1;
    c->sent += (size_t)n;
    if (c->sent == c->have) {
        c->have = c->sent = 0;
        c->sending = 0;
    }
    return 1;
}

static void serve(int fd) {
    struct conn *c = &conns[fd];
    int more;

    do
        more = c->sending ? write_some(fd, c) : read_some(fd, c);
    while (more > 0);
    if (more < 0)
        drop(fd);
}

static void accept_all(int ep, int listener) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if ((size_t)fd >= conns_size) {
            close(fd);
            continue;
        }
        nodelay(fd);
        ev.data.fd = fd;
        if (epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) < 0)
            close(fd);
    }
}

int main(int argc, char **argv) {
    struct epoll_event events[512], ev = {.events = EPOLLIN};
    int ep, listener, n;

    if (argc != 2 && argc != 3)
        die("usage: echo PORT [SIZE]");
    if (argc == 3)
        message = (size_t)number("SIZE", argv[2], 1, 1 << 30);
    peer_start();
    conns_size = max_files();
    conns = need(calloc(conns_size, sizeof *conns));
    ep = epoll_create1(EPOLL_CLOEXEC);
    listener = listen_ready(argv[1], SOCK_NONBLOCK);
    ev.data.fd = listener;
    if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &ev) < 0)
        die("epoll: %s", strerror(errno));
    for (;;) {
        n = epoll_wait(ep, events, 512, -1);
        if (n < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(ep, listener);
            else
                serve(events[i].data.fd);
        }
    }
}
