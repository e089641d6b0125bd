/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

#include "erlane_sys.h"

#ifdef ERLANE_FAULTS
#include "erlane_faults.h"
#endif

static int res(int r) { return r < 0 ? -errno : r; }

static int open_in(int domain, int protocol)
{
    return res(socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
}

int sys_socket(int domain, int protocol, const char *netns)
{
    if (netns == NULL)
        return open_in(domain, protocol);
    /* A thread visits the namespace, makes the socket there and comes back; a
     * thread that could not come back must not run anything else. */
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return -errno;
    int there = open(netns, O_RDONLY | O_CLOEXEC);
    int fd = there < 0 ? -errno : 0;
    if (fd == 0 && setns(there, CLONE_NEWNET) < 0)
        fd = -errno;
    if (fd == 0) {
        fd = open_in(domain, protocol);
        while (setns(home, CLONE_NEWNET) < 0)
            ;
    }
    if (there >= 0)
        close(there);
    close(home);
    return fd;
}

int sys_accept(int fd)
{
    return res(accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

int sys_adopt(int fd, int *domain, int *listening, int *connected)
{
    int type = 0;
    socklen_t n = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0)
        return -errno;
    if (type != SOCK_STREAM)
        return -EINVAL;
    n = sizeof *domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, domain, &n) < 0)
        return -errno;
    n = sizeof *listening;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, listening, &n) < 0)
        return -errno;
    struct sys_addr a;
    *connected = sys_name(fd, 1, &a) == 0;
    int fl = fcntl(fd, F_GETFL);
    if (fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0)
        return -errno;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    return 0;
}

int sys_epoll_create(void) { return res(epoll_create1(EPOLL_CLOEXEC)); }

int sys_epoll_add(int epfd, int fd, uint64_t data)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            .data = {.u64 = data}};
    return res(epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e));
}

int sys_epoll_del(int epfd, int fd)
{
    struct epoll_event e = {0};
    return res(epoll_ctl(epfd, EPOLL_CTL_DEL, fd, &e));
}

int sys_epoll_poll(int epfd, struct epoll_event *evs, int max)
{
    return res(epoll_wait(epfd, evs, max, 0));
}

int sys_bind(int fd, const struct sys_addr *a)
{
    return res(bind(fd, (const struct sockaddr *)&a->ss, a->len));
}

int sys_listen(int fd, int backlog) { return res(listen(fd, backlog)); }

int sys_connect(int fd, const struct sys_addr *a)
{
    return res(connect(fd, (const struct sockaddr *)&a->ss, a->len));
}

int sys_connect_error(int fd)
{
    int e = 0;
    socklen_t n = sizeof e;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
        return -errno;
    return -e;
}

ssize_t sys_recv(int fd, void *buf, size_t len)
{
    ssize_t n;
    do
        n = recv(fd, buf, len, 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

ssize_t sys_send(int fd, const void *buf, size_t len)
{
    ssize_t n;
    do
        n = send(fd, buf, len, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static ssize_t send_vec(int fd, struct iovec *iov, int n, int flags)
{
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    ssize_t r;
    do
        r = sendmsg(fd, &m, MSG_NOSIGNAL | flags);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r;
}

ssize_t sys_sendv(int fd, struct iovec *iov, int n) { return send_vec(fd, iov, n, 0); }

ssize_t sys_sendv_more(int fd, struct iovec *iov, int n)
{
    return send_vec(fd, iov, n, MSG_MORE);
}

ssize_t sys_sendfile(int fd, int file, off_t *off, size_t count)
{
    ssize_t n;
    do
        n = sendfile(fd, file, off, count);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

int sys_shutdown(int fd, int how) { return res(shutdown(fd, how)); }

int sys_name(int fd, int peer, struct sys_addr *a)
{
    a->len = sizeof a->ss;
    memset(&a->ss, 0, sizeof a->ss);
    struct sockaddr *sa = (struct sockaddr *)&a->ss;
    return res(peer ? getpeername(fd, sa, &a->len) : getsockname(fd, sa, &a->len));
}

int sys_setsockopt(int fd, int level, int name, const void *v, size_t n)
{
    return res(setsockopt(fd, level, name, v, (socklen_t)n));
}

int sys_getsockopt(int fd, int level, int name, void *v, socklen_t *n)
{
    return res(getsockopt(fd, level, name, v, n));
}

int sys_reset_on_close(int fd)
{
    struct linger l = {.l_onoff = 1, .l_linger = 0};
    return res(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l));
}

int sys_dup(int fd) { return res(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

void sys_close(int fd) { (void)close(fd); }

int64_t sys_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t sys_now_ms(void) { return sys_now_ns() / 1000000; }
