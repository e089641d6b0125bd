/* SPDX-License-Identifier: Apache-2.0 */
/* System calls of the lanes. No Erlang terms here: every function takes plain
 * C values and answers 0 or a count, or a negative errno. */
#ifndef ERLANE_SYS_H
#define ERLANE_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct sys_addr {
    struct sockaddr_storage ss;
    socklen_t len;
};

/* Every descriptor made here is non-blocking and close-on-exec. */
int sys_socket(int domain, int protocol, const char *netns);
int sys_accept(int fd);
int sys_adopt(int fd, int *domain, int *listening, int *connected);
int sys_epoll_create(void);
int sys_epoll_add(int epfd, int fd, uint64_t data);
int sys_epoll_del(int epfd, int fd);
int sys_epoll_poll(int epfd, struct epoll_event *evs, int max);
int sys_bind(int fd, const struct sys_addr *a);
int sys_listen(int fd, int backlog);
int sys_connect(int fd, const struct sys_addr *a);
int sys_connect_error(int fd);
ssize_t sys_recv(int fd, void *buf, size_t len);
ssize_t sys_send(int fd, const void *buf, size_t len);
ssize_t sys_sendv(int fd, struct iovec *iov, int n);
/* The last segment waits for what follows: more bytes, shutdown or close. */
ssize_t sys_sendv_more(int fd, struct iovec *iov, int n);
ssize_t sys_sendfile(int fd, int file, off_t *off, size_t count);
int sys_shutdown(int fd, int how);
int sys_name(int fd, int peer, struct sys_addr *a);
int sys_setsockopt(int fd, int level, int name, const void *v, size_t n);
int sys_getsockopt(int fd, int level, int name, void *v, socklen_t *n);
int sys_reset_on_close(int fd);
int sys_dup(int fd);
void sys_close(int fd);
/* CLOCK_MONOTONIC in milliseconds and nanoseconds. */
int64_t sys_now_ms(void);
int64_t sys_now_ns(void);

#ifdef ERLANE_FAULTS
/* Fault injection for tests: every nth call of recv, send or accept is short
 * or fails with EAGAIN, EINTR or EMFILE. 0 switches it off. */
void sys_faults(unsigned every);
#endif
#endif
