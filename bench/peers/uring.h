/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the io_uring peers share: a ring, its provided buffers, and requests that name their
 * kind and descriptor. Kernel 6.0 or later, for multishot receive.
 */
#ifndef URING_H
#define URING_H

#include "peer.h"

#include <liburing.h>

#define URING_ENTRIES 4096
#define URING_GROUP 1

enum op { OP_ACCEPT, OP_RECV, OP_SEND, OP_CONNECT, OP_SHUTDOWN, OP_CLOSE };

static struct io_uring ring;
static struct io_uring_buf_ring *uring_bufs;
static char *uring_memory;
static unsigned uring_count, uring_size;

static inline uint64_t tag(enum op op, int fd) {
    return (uint64_t)op << 32 | (uint32_t)fd;
}

static inline enum op tag_op(uint64_t tag) {
    return (enum op)(tag >> 32);
}

static inline int tag_fd(uint64_t tag) {
    return (int)(uint32_t)tag;
}

static inline struct io_uring_sqe *get_sqe(void) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

    if (sqe == NULL) {
        io_uring_submit(&ring);
        sqe = need(io_uring_get_sqe(&ring));
    }
    return sqe;
}

/* A linked pair must be submitted together: makes room for n entries before the first. */
static inline void reserve(unsigned n) {
    if (io_uring_sq_space_left(&ring) < n)
        io_uring_submit(&ring);
}

static inline char *buffer_at(unsigned id) {
    return uring_memory + (size_t)id * uring_size;
}

static inline void give_back(unsigned id) {
    io_uring_buf_ring_add(uring_bufs, buffer_at(id), uring_size, (unsigned short)id,
                          io_uring_buf_ring_mask(uring_count), 0);
    io_uring_buf_ring_advance(uring_bufs, 1);
}

/* The ring with the cheapest way of running completions that this kernel knows. */
static inline void uring_start(unsigned count, unsigned size) {
    static const unsigned ways[] = {
#ifdef IORING_SETUP_DEFER_TASKRUN
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
#endif
        IORING_SETUP_COOP_TASKRUN, 0};
    struct io_uring_buf_reg reg = {.ring_entries = count, .bgid = URING_GROUP};
    size_t bytes = count * sizeof(struct io_uring_buf);
    int r = -EINVAL;

    for (size_t i = 0; i < sizeof ways / sizeof *ways && r == -EINVAL; i++) {
        struct io_uring_params p = {.flags = ways[i] | IORING_SETUP_CQSIZE, .cq_entries = 65536};
        r = io_uring_queue_init_params(URING_ENTRIES, &ring, &p);
    }
    if (r < 0)
        die("the kernel refuses io_uring: %s", strerror(-r));
    uring_count = count;
    uring_size = size;
    uring_memory = need(malloc((size_t)count * size));
    if (posix_memalign((void **)&uring_bufs, 4096, bytes) != 0)
        die("out of memory");
    memset(uring_bufs, 0, bytes);
    reg.ring_addr = (uint64_t)(uintptr_t)uring_bufs;
    r = io_uring_register_buf_ring(&ring, &reg, 0);
    if (r < 0)
        die("the kernel has no provided buffers: %s", strerror(-r));
    io_uring_buf_ring_init(uring_bufs);
    for (unsigned i = 0; i < count; i++)
        give_back(i);
}

static inline void arm_accept(int listener) {
    struct io_uring_sqe *sqe = get_sqe();

    io_uring_prep_multishot_accept(sqe, listener, NULL, NULL, SOCK_CLOEXEC);
    io_uring_sqe_set_data64(sqe, tag(OP_ACCEPT, listener));
}

static inline void arm_recv(int fd) {
    struct io_uring_sqe *sqe = get_sqe();

    io_uring_prep_recv_multishot(sqe, fd, NULL, 0, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = URING_GROUP;
    io_uring_sqe_set_data64(sqe, tag(OP_RECV, fd));
}

/* Waits, gives each completion to its function, goes on for ever. */
static inline void uring_loop(void (*completed)(struct io_uring_cqe *)) {
    struct io_uring_cqe *cqe;
    unsigned head, n;
    int r;

    for (;;) {
        r = io_uring_submit_and_wait(&ring, 1);
        if (r < 0 && r != -EINTR && r != -EBUSY)
            die("io_uring_enter: %s", strerror(-r));
        n = 0;
        io_uring_for_each_cqe(&ring, head, cqe) {
            completed(cqe);
            n++;
        }
        io_uring_cq_advance(&ring, n);
    }
}

#endif
