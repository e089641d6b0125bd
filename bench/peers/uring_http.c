/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: uring_http PORT
 *
 * Hello over HTTP, keep-alive, one thread, io_uring: multishot accept and receive, provided
 * buffers, one system call for a batch of requests.
 */
#include "http.h"
#include "uring.h"

#include <liburing.h>

struct conn {
    struct http http;
    unsigned sending;  /* sends not completed yet */
    int receiving;     /* the multishot receive is armed */
    int closing;
};

static struct conn *conns;
static size_t conns_size;

/* A descriptor may be closed, and its number used again, only when nothing names it any more. */
static void close_if_quiet(int fd) {
    struct conn *c = &conns[fd];
    struct io_uring_sqe *sqe;

    if (!c->closing || c->receiving || c->sending > 0)
        return;
    http_reset(&c->http);
    c->closing = 0;
    sqe = get_sqe();
    io_uring_prep_close(sqe, fd);
    io_uring_sqe_set_data64(sqe, tag(OP_CLOSE, fd));
}

static void begin_close(int fd) {
    struct conn *c = &conns[fd];

    /* Ends the receive that is armed: its last completion then closes. */
    if (!c->closing && c->receiving)
        shutdown(fd, SHUT_RDWR);
    c->closing = 1;
    close_if_quiet(fd);
}

static void answer(int fd, int requests, int last) {
    struct io_uring_sqe *sqe;

    reserve(2);
    sqe = get_sqe();
    io_uring_prep_send(sqe, fd, http_replies, (size_t)requests * HTTP_REPLY_SIZE, MSG_WAITALL);
    io_uring_sqe_set_data64(sqe, tag(OP_SEND, fd));
    conns[fd].sending++;
    if (last) {
        conns[fd].closing = 1;
        sqe->flags |= IOSQE_IO_LINK;
        sqe = get_sqe();
        io_uring_prep_shutdown(sqe, fd, SHUT_RDWR);
        io_uring_sqe_set_data64(sqe, tag(OP_SHUTDOWN, fd));
        conns[fd].sending++;
    }
}

static void received(int fd, struct io_uring_cqe *cqe) {
    struct conn *c = &conns[fd];
    unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
    int requests, last = 0;

    if (cqe->res == -EINVAL)
        die("the kernel has no multishot receive");
    if (!(cqe->flags & IORING_CQE_F_MORE))
        c->receiving = 0;
    if (cqe->res > 0) {
        requests = c->closing ? 0 : http_feed(&c->http, buffer_at(id), (size_t)cqe->res, &last);
        give_back(id);
        if (requests < 0)
            begin_close(fd);
        else if (requests > 0)
            answer(fd, requests, last);
    }
    if (cqe->res == 0 || (cqe->res < 0 && cqe->res != -ENOBUFS)) {
        begin_close(fd);
    } else if (!c->receiving && !c->closing) {
        c->receiving = 1;
        arm_recv(fd);
    } else {
        close_if_quiet(fd);
    }
}

static void completed(struct io_uring_cqe *cqe) {
    int fd = tag_fd(cqe->user_data);

    switch (tag_op(cqe->user_data)) {
    case OP_ACCEPT:
        if (cqe->res >= 0 && (size_t)cqe->res < conns_size) {
            nodelay(cqe->res);
            conns[cqe->res].receiving = 1;
            arm_recv(cqe->res);
        } else if (cqe->res >= 0) {
            close(cqe->res);
        }
        if (!(cqe->flags & IORING_CQE_F_MORE))
            arm_accept(fd);
        break;
    case OP_RECV:
        received(fd, cqe);
        break;
    case OP_SEND:
        conns[fd].sending--;
        if (cqe->res <= 0)
            begin_close(fd);
        else
            close_if_quiet(fd);
        break;
    case OP_SHUTDOWN:
        conns[fd].sending--;
        close_if_quiet(fd);
        break;
    default:
        break;
    }
}

int main(int argc, char **argv) {
    int listener;

    if (argc != 2)
        die("usage: uring_http PORT");
    peer_start();
    http_init();
    conns_size = max_files();
    conns = need(calloc(conns_size, sizeof *conns));
    uring_start(4096, 4096);
    listener = listen_ready(argv[1], 0);
    arm_accept(listener);
    uring_loop(completed);
}
