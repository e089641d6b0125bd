/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all peers share: sockets on loopback, failing with a sentence, ending in time.
 * Header only; a peer is one program in one file.
 */
#ifndef PEER_H
#define PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A peer that nobody ends does so itself: no benchmark lasts longer. */
#define PEER_MAX_SECONDS 7200
#define PEER_BACKLOG 4096

static inline void die(const char *format, ...) {
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

/* An allocation that fails ends the peer: a measured server has no use for less memory. */
static inline void *need(void *p) {
    if (p == NULL)
        die("out of memory");
    return p;
}

/* A whole number in min..max, or the end of the program. */
static inline long number(const char *what, const char *text, long min, long max) {
    char *end;
    long n;

    errno = 0;
    n = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || n < min || n > max)
        die("%s: %s is not a number from %ld to %ld", what, text, min, max);
    return n;
}

static inline uint64_t now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct sockaddr_in address_of(const char *host, const char *port) {
    struct sockaddr_in a = {.sin_family = AF_INET};

    a.sin_port = htons((uint16_t)number("port", port, 0, 65535));
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
        die("host: %s is not an IPv4 address", host);
    return a;
}

/* Small messages are measured: Nagle's algorithm would measure its timer. */
static inline void nodelay(int fd) {
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Common start: no SIGPIPE, a limit in time, as many descriptors as the system allows. */
static inline void peer_start(void) {
    struct rlimit files;

    signal(SIGPIPE, SIG_IGN);
    alarm(PEER_MAX_SECONDS);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* Listens on loopback and says so: "ready PORT" is the line the harness waits for. */
static inline int listen_ready(const char *port, int flags) {
    struct sockaddr_in a = address_of("127.0.0.1", port);
    socklen_t size = sizeof a;
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

    if (fd < 0)
        die("socket: %s", strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0)
        die("bind 127.0.0.1:%s: %s", port, strerror(errno));
    if (listen(fd, PEER_BACKLOG) < 0)
        die("listen: %s", strerror(errno));
    getsockname(fd, (struct sockaddr *)&a, &size);
    printf("ready %d\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

/* The table of a server: one entry for each descriptor that this process can have. */
static inline size_t max_files(void) {
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur > 1048576)
        return 1048576;
    return files.rlim_cur;
}

#endif
