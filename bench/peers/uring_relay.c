/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: uring_relay PORT TOHOST TOPORT
 *
 * Relays connections, one thread, io_uring: multishot receive into provided buffers; a buffer
 * goes back when the other side has taken what is in it. Sends of one direction go out one
 * after the other, as io_uring keeps no order among them.
 */
#include "uring.h"

#include <liburing.h>

/* What came and is not sent yet, in order. Bounded by the number of buffers. */
struct piece {
    struct piece *next;
    unsigned id, size, sent;
};

/* One side of a pair, found by its descriptor. */
struct side {
    int peer; /* descriptor of the other side, -1 when this entry is unused */
    int connected;
    int receiving; /* a multishot receive is armed */
    int ended;     /* its end of stream was received */
    int shut;      /* the end was passed on to it */
    int broken;
    unsigned pending; /* requests in the kernel that name it, the receive among them */
    struct piece *first, *last; /* to be sent to it; the first is in the kernel */
};

static struct side *sides;
static size_t sides_size;
static struct piece *pieces;
static struct sockaddr_in upstream;
/* Receives that ended because all buffers were taken: tried again when one comes back. */
static int *starved;
static unsigned starved_n;

static void send_first(int fd) {
    struct side *s = &sides[fd];
    struct io_uring_sqe *sqe = get_sqe();

    io_uring_prep_send(sqe, fd, buffer_at(s->first->id) + s->first->sent,
                       s->first->size - s->first->sent, 0);
    io_uring_sqe_set_data64(sqe, tag(OP_SEND, fd));
    s->pending++;
}

static void start_recv(int fd) {
    sides[fd].receiving = 1;
    sides[fd].pending++;
    arm_recv(fd);
}

static void wake_starved(void) {
    int fd;

    while (starved_n > 0) {
        fd = starved[--starved_n];
        /* The number may be that of another connection by now. */
        if (sides[fd].peer >= 0 && sides[fd].connected && sides[sides[fd].peer].connected &&
            !sides[fd].receiving && !sides[fd].broken && !sides[fd].ended) {
            start_recv(fd);
            return;
        }
    }
}

static void drop_first(struct side *s) {
    struct piece *p = s->first;

    s->first = p->next;
    if (s->first == NULL)
        s->last = NULL;
    give_back(p->id);
    wake_starved();
}

/* Both descriptors close together, when no request in the kernel names either. */
static void close_if_quiet(int fd) {
    int peer = sides[fd].peer;
    struct side *s = &sides[fd], *p = &sides[peer];

    if (!s->broken && !(s->ended && p->ended && s->first == NULL && p->first == NULL))
        return;
    if (s->pending > 0 || p->pending > 0)
        return;
    while (s->first != NULL)
        drop_first(s);
    while (p->first != NULL)
        drop_first(p);
    s->peer = p->peer = -1;
    close(fd);
    close(peer);
}

static void break_pair(int fd) {
    int peer = sides[fd].peer;

    if (!sides[fd].broken) {
        sides[fd].broken = sides[peer].broken = 1;
        /* Ends every request that is armed on them. */
        shutdown(fd, SHUT_RDWR);
        shutdown(peer, SHUT_RDWR);
    }
    close_if_quiet(fd);
}

/* The end of one side reaches the other behind the last byte. */
static void pass_end(int to) {
    struct side *s = &sides[to];

    if (sides[s->peer].ended && s->first == NULL && !s->shut) {
        s->shut = 1;
        shutdown(to, SHUT_WR);
    }
}

static void received(int fd, struct io_uring_cqe *cqe) {
    struct side *s = &sides[fd], *p = &sides[s->peer];
    struct piece *piece;

    if (cqe->res == -EINVAL)
        die("the kernel has no multishot receive");
    if (!(cqe->flags & IORING_CQE_F_MORE)) {
        s->receiving = 0;
        s->pending--;
    }
    if (cqe->res > 0) {
        piece = &pieces[cqe->flags >> IORING_CQE_BUFFER_SHIFT];
        *piece = (struct piece){.id = (unsigned)(piece - pieces), .size = (unsigned)cqe->res};
        if (p->last != NULL)
            p->last->next = piece;
        else
            p->first = piece;
        p->last = piece;
        if (p->first == piece && p->connected)
            send_first(s->peer);
    }
    if (s->broken) {
        close_if_quiet(fd);
    } else if (cqe->res == 0) {
        s->ended = 1;
        pass_end(s->peer);
        close_if_quiet(fd);
    } else if (cqe->res < 0 && cqe->res != -ENOBUFS) {
        break_pair(fd);
    } else if (cqe->res == -ENOBUFS) {
        starved[starved_n++] = fd;
    } else if (!s->receiving) {
        start_recv(fd);
    }
}

static void sent(int fd, int result) {
    struct side *s = &sides[fd];

    s->pending--;
    if (s->broken || result <= 0) {
        break_pair(fd);
        return;
    }
    s->first->sent += (unsigned)result;
    if (s->first->sent == s->first->size)
        drop_first(s);
    if (s->first != NULL)
        send_first(fd);
    else
        pass_end(fd);
    close_if_quiet(fd);
}

static void accepted(int client) {
    struct io_uring_sqe *sqe;
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (server < 0 || (size_t)client >= sides_size || (size_t)server >= sides_size) {
        close(client);
        if (server >= 0)
            close(server);
        return;
    }
    nodelay(client);
    nodelay(server);
    sides[client] = (struct side){.peer = server, .connected = 1};
    sides[server] = (struct side){.peer = client, .pending = 1};
    sqe = get_sqe();
    io_uring_prep_connect(sqe, server, (struct sockaddr *)&upstream, sizeof upstream);
    io_uring_sqe_set_data64(sqe, tag(OP_CONNECT, server));
}

static void connected(int server, int result) {
    struct side *s = &sides[server];

    s->pending--;
    if (result < 0) {
        break_pair(server);
        return;
    }
    s->connected = 1;
    start_recv(server);
    start_recv(s->peer);
}

static void completed(struct io_uring_cqe *cqe) {
    int fd = tag_fd(cqe->user_data);

    switch (tag_op(cqe->user_data)) {
    case OP_ACCEPT:
        if (cqe->res >= 0)
            accepted(cqe->res);
        if (!(cqe->flags & IORING_CQE_F_MORE))
            arm_accept(fd);
        break;
    case OP_RECV:
        received(fd, cqe);
        break;
    case OP_SEND:
        sent(fd, cqe->res);
        break;
    case OP_CONNECT:
        connected(fd, cqe->res);
        break;
    default:
        break;
    }
}

int main(int argc, char **argv) {
    const unsigned count = 256, size = 65536;
    int listener;

    if (argc != 4)
        die("usage: uring_relay PORT TOHOST TOPORT");
    upstream = address_of(argv[2], argv[3]);
    peer_start();
    sides_size = max_files();
    sides = need(calloc(sides_size, sizeof *sides));
    starved = need(calloc(sides_size, sizeof *starved));
    pieces = need(calloc(count, sizeof *pieces));
    for (size_t i = 0; i < sides_size; i++)
        sides[i].peer = -1;
    uring_start(count, size);
    listener = listen_ready(argv[1], 0);
    arm_accept(listener);
    uring_loop(completed);
}
