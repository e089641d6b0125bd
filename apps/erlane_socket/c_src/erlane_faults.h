/* SPDX-License-Identifier: Apache-2.0 */
/* Fault injection, in builds with ERLANE_FAULTS only: system calls of the same
 * names that fail now and then. Included once, by erlane_sys.c.
 *
 * Every nth call of recv, send, sendmsg, sendfile and accept4 is short, finds
 * nothing (EAGAIN), is interrupted or finds no descriptor (accept4). The reader
 * of an edge-triggered poll set takes EAGAIN and a short count for the end of
 * what there is: the next byte brings an edge. The kernel does not know of our
 * answer and owes no edge, so to lie is only fair if we bring that edge. Arming
 * the descriptor anew does: the kernel reports at once whatever is ready, as if
 * it had come just after the call. A descriptor in no poll set needs nothing,
 * for its registration reports what is ready. */
#ifndef ERLANE_FAULTS_H
#define ERLANE_FAULTS_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

enum fault { NO_FAULT, AGAIN, SHORT, INTERRUPTED, FAULTS };
enum { TRACKED = 65536, SHORT_LEN = 3 };

static _Atomic unsigned fault_every, fault_calls, fault_made;
static pthread_mutex_t track_mtx = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int epfd; /* 0: in no poll set */
    struct epoll_event ev;
} track[TRACKED]; /* by descriptor, under track_mtx */

void sys_faults(unsigned every) { atomic_store(&fault_every, every); }

/* Kinds take turns, so that none is left out whatever the program calls. */
static enum fault fault(void)
{
    unsigned e = atomic_load(&fault_every);
    if (e == 0 || atomic_fetch_add(&fault_calls, 1) % e != 0)
        return NO_FAULT;
    return AGAIN + atomic_fetch_add(&fault_made, 1) % (FAULTS - AGAIN);
}

static int faulty_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
    if (fd < 0 || fd >= TRACKED)
        return epoll_ctl(epfd, op, fd, ev);
    /* One mutex over both: an edge is never armed with another socket's data. */
    pthread_mutex_lock(&track_mtx);
    int r = epoll_ctl(epfd, op, fd, ev);
    track[fd].epfd = op == EPOLL_CTL_DEL || r < 0 ? 0 : epfd;
    track[fd].ev = *ev;
    pthread_mutex_unlock(&track_mtx);
    return r;
}

static void owed_edge(int fd)
{
    if (fd < 0 || fd >= TRACKED)
        return;
    pthread_mutex_lock(&track_mtx);
    if (track[fd].epfd)
        (void)epoll_ctl(track[fd].epfd, EPOLL_CTL_MOD, fd, &track[fd].ev);
    pthread_mutex_unlock(&track_mtx);
}

/* True when the call fails, with errno set; a short one lowers *len. */
static bool fails(int fd, size_t *len)
{
    enum fault f = fault();
    if (f == AGAIN || f == SHORT)
        owed_edge(fd);
    if (f == SHORT && *len > SHORT_LEN)
        *len = SHORT_LEN;
    errno = f == INTERRUPTED ? EINTR : EAGAIN;
    return f == AGAIN || f == INTERRUPTED;
}

static ssize_t faulty_recv(int fd, void *buf, size_t len, int flags)
{
    return fails(fd, &len) ? -1 : recv(fd, buf, len, flags);
}

static ssize_t faulty_send(int fd, const void *buf, size_t len, int flags)
{
    return fails(fd, &len) ? -1 : send(fd, buf, len, flags);
}

/* A short sendmsg ends within the first piece, which may be a packet's header. */
static ssize_t faulty_sendmsg(int fd, const struct msghdr *m, int flags)
{
    size_t first = m->msg_iov[0].iov_len, len = first;
    if (fails(fd, &len))
        return -1;
    return len < first ? send(fd, m->msg_iov[0].iov_base, len, flags) : sendmsg(fd, m, flags);
}

/* fd is a duplicate and in no poll set, so an EAGAIN here would bring no edge;
 * a short count is what sendfile(2) often gives. */
static ssize_t faulty_sendfile(int fd, int file, off_t *off, size_t count)
{
    enum fault f = fault();
    errno = EINTR;
    if (f == SHORT && count > SHORT_LEN)
        count = SHORT_LEN;
    return f == INTERRUPTED ? -1 : sendfile(fd, file, off, count);
}

static int faulty_accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
    enum fault f = fault();
    if (f == AGAIN)
        owed_edge(fd);
    errno = f == AGAIN ? EAGAIN : f == SHORT ? ECONNABORTED : EMFILE;
    return f ? -1 : accept4(fd, a, n, flags);
}

#define epoll_ctl faulty_epoll_ctl
#define recv faulty_recv
#define send faulty_send
#define sendmsg faulty_sendmsg
#define sendfile faulty_sendfile
#define accept4 faulty_accept4
#endif
