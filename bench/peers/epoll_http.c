/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: epoll_http PORT
 *
 * Hello over HTTP, keep-alive, one thread, edge-triggered epoll: what a careful C program costs
 * for one request, and so the floor for a server that uses one recv and one send.
 */
#include "http.h"

#include <sys/epoll.h>

static char buffer[65536];
static struct http *conns;
static size_t conns_size;

static void drop(int fd) {
    http_reset(&conns[fd]);
    close(fd);
}

static void accept_all(int ep, int listener) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
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

/* A short read means that the socket is empty, unless the end has come together with the bytes. */
static void serve(int fd, int ending) {
    ssize_t n, sent;
    size_t size;
    int requests, last;

    do {
        n = recv(fd, buffer, sizeof buffer, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0 || (requests = http_feed(&conns[fd], buffer, (size_t)n, &last)) < 0) {
            drop(fd);
            return;
        }
        if (requests == 0)
            continue;
        size = (size_t)requests * HTTP_REPLY_SIZE;
        sent = send(fd, http_replies, size, 0);
        /* A client that does not read its answers has no use here. */
        if (sent != (ssize_t)size || last) {
            drop(fd);
            return;
        }
    } while (ending || (size_t)n == sizeof buffer);
}

int main(int argc, char **argv) {
    struct epoll_event events[512], ev = {.events = EPOLLIN};
    int ep, listener, n;

    if (argc != 2)
        die("usage: epoll_http PORT");
    peer_start();
    http_init();
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
                serve(events[i].data.fd, (events[i].events & ~(unsigned)EPOLLIN) != 0);
        }
    }
}
