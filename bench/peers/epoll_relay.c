/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: epoll_relay PORT TOHOST TOPORT
 *
 * Relays connections, one thread, edge-triggered epoll: what is read from one side is written to
 * the other at once, from one buffer for all. The floor for a relay that copies through user
 * space: one recv and one send a message.
 */
#include "peer.h"

#include <sys/epoll.h>

#define CHUNK 65536

/*
 * One side of a pair. `kept` holds what its peer sent and it did not take; it exists only while
 * that is so, and meanwhile nothing more is read from the peer.
 */
struct side {
    struct side *peer;
    int fd;
    int connected;
    int ending; /* the kernel has said that the end is near: a short read is not the last */
    int ended;  /* its end of stream was read */
    char *kept;
    size_t from, to;
    struct side *next_dead;
};

static char buffer[CHUNK];
static struct sockaddr_in upstream;
static int ep;
/* Pairs closed in this batch of events; a later event of the batch may still name them. */
static struct side *dead;

static void close_pair(struct side *s) {
    struct side *p = s->peer;

    if (s->fd < 0)
        return;
    close(s->fd);
    close(p->fd);
    s->fd = p->fd = -1;
    s->next_dead = p;
    p->next_dead = dead;
    dead = s;
}

static void free_dead(void) {
    struct side *s;

    while ((s = dead) != NULL) {
        dead = s->next_dead;
        free(s->kept);
        free(s);
    }
}

/* -1: the pair is over. What the kernel does not take is kept. */
static int push(struct side *to, const char *data, size_t n) {
    ssize_t sent = send(to->fd, data, n, 0);

    if (sent == (ssize_t)n)
        return 0;
    if (sent < 0 && errno != EAGAIN)
        return -1;
    if (sent < 0)
        sent = 0;
    to->kept = need(malloc(n - (size_t)sent));
    memcpy(to->kept, data + sent, n - (size_t)sent);
    to->from = 0;
    to->to = n - (size_t)sent;
    return 0;
}

/* Moves what has come on one side; ends when the socket is empty or the other side is full. */
static void pull(struct side *s) {
    struct side *p = s->peer;
    ssize_t n;

    if (!s->connected || !p->connected || s->ended)
        return;
    while (p->kept == NULL) {
        n = recv(s->fd, buffer, sizeof buffer, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 || (n > 0 && push(p, buffer, (size_t)n) < 0)) {
            close_pair(s);
            return;
        }
        if (n == 0) {
            s->ended = 1;
            if (p->ended && s->kept == NULL)
                close_pair(s);
            else
                shutdown(p->fd, SHUT_WR);
            return;
        }
        if ((size_t)n < sizeof buffer && !s->ending)
            return;
    }
}

/* There is room again: first what was kept, then whatever waits on the other side. */
static void flush(struct side *s) {
    ssize_t n = send(s->fd, s->kept + s->from, s->to - s->from, 0);

    if (n < 0 && errno != EAGAIN) {
        close_pair(s);
        return;
    }
    if (n > 0)
        s->from += (size_t)n;
    if (s->from < s->to)
        return;
    free(s->kept);
    s->kept = NULL;
    pull(s->peer);
}

static void on_event(struct side *s, uint32_t happened) {
    if (s->fd < 0)
        return;
    if (happened & (EPOLLRDHUP | EPOLLERR | EPOLLHUP))
        s->ending = 1;
    if (!s->connected && happened & (EPOLLERR | EPOLLHUP)) {
        close_pair(s);
        return;
    }
    if (!s->connected) {
        s->connected = 1;
        pull(s->peer); /* what the client has sent meanwhile */
    }
    if (s->fd >= 0 && s->kept != NULL && happened & EPOLLOUT)
        flush(s);
    if (s->fd >= 0 && happened & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
        pull(s);
}

static int watch(struct side *s) {
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = s};

    return epoll_ctl(ep, EPOLL_CTL_ADD, s->fd, &ev);
}

static void accept_all(int listener) {
    struct side *client, *server;
    int fd;

    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        client = need(calloc(1, sizeof *client));
        server = need(calloc(1, sizeof *server));
        *client = (struct side){.peer = server, .fd = fd, .connected = 1};
        *server = (struct side){.peer = client};
        server->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (server->fd < 0) {
            close(fd);
            free(client);
            free(server);
            continue;
        }
        nodelay(client->fd);
        nodelay(server->fd);
        if ((connect(server->fd, (struct sockaddr *)&upstream, sizeof upstream) < 0 &&
             errno != EINPROGRESS) ||
            watch(server) < 0 || watch(client) < 0)
            close_pair(client);
    }
}

int main(int argc, char **argv) {
    struct epoll_event events[512], ev = {.events = EPOLLIN};
    int listener, n;

    if (argc != 4)
        die("usage: epoll_relay PORT TOHOST TOPORT");
    upstream = address_of(argv[2], argv[3]);
    peer_start();
    ep = epoll_create1(EPOLL_CLOEXEC);
    listener = listen_ready(argv[1], SOCK_NONBLOCK);
    ev.data.ptr = NULL;
    if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listener, &ev) < 0)
        die("epoll: %s", strerror(errno));
    for (;;) {
        n = epoll_wait(ep, events, 512, -1);
        if (n < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                accept_all(listener);
            else
                on_event(events[i].data.ptr, events[i].events);
        }
        free_dead();
    }
}
