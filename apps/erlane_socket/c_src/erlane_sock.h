/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and lanes: the data that the C files of erlane_socket share.
 *
 * Ownership and life of a socket
 *
 *        sock_open / accept / fdopen
 *                  |
 *                OPEN --connect--> CONNECTING --ok--> CONNECTED
 *                  |                    |                 |
 *                listen               error     relay / eof / error
 *                  |                    |                 |
 *              LISTENING ---------------+--- sock_close --+--> CLOSED
 *
 *   - All fields are guarded by s->mtx, except where a comment says otherwise.
 *     The mutex is held for non-blocking system calls only.
 *   - While the descriptor is open the socket holds one reference on itself
 *     (open means referenced), so neither the poller nor a list walk can meet
 *     a freed socket. Dropping all terms does not close it; close, the owner's
 *     death and the end of the application do.
 *   - sock_close is the only place that closes the descriptor: it runs once,
 *     under the mutex, after EPOLL_CTL_DEL.
 *   - An event that the poller fetched before EPOLL_CTL_DEL may still name the
 *     socket. Therefore the open reference is not dropped at once but put on
 *     the lane's list of the dead, which only that lane's poller empties, and
 *     only when no fetched event is left. The event itself finds the
 *     descriptor gone (or another lane) and is counted as stale.
 *   - Lock order: a lane's turn; a relay's two sockets by the lane that owns
 *     both; socket, then lane list. Never two sockets outside a relay.
 *
 * Who reads: the lane if the socket is active, else the caller of recv. The
 * lane sets `readable`, the reader clears it before it calls recv(2), so an
 * edge that comes in between is not lost. No flag, no system call.
 */
#ifndef ERLANE_SOCK_H
#define ERLANE_SOCK_H

#include <erl_nif.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>

#include "erlane_sys.h"

/* Numbers shared with src/erlane_nif.hrl. */
enum own_opt {
    OPT_MODE, OPT_PACKET, OPT_HEADER, OPT_DELIVER, OPT_PACKET_SIZE, OPT_LINE_DELIMITER,
    OPT_BUFFER, OPT_EXIT_ON_CLOSE, OPT_SHOW_ECONNRESET, OPT_HIGH_WATERMARK,
    OPT_LOW_WATERMARK, OPT_SEND_TIMEOUT, OPT_SEND_TIMEOUT_CLOSE, OPT_DELAY_SEND,
    OPT_READ_AHEAD, OPT_LINGER_ZERO, OPT_HIGH_MSGQ, OPT_LOW_MSGQ, OPT_DEBUG,
    OPT_BUFFER_SET, /* `buffer` was set: BUFFER_HERE, or by the listener */
    OPT_STORED,     /* the first that is not stored in opt[] */
    OPT_FAMILY = OPT_STORED, OPT_FD, OPT_LANE, OPT_STATE, OPT_SEND_PEND, OPT_ACTIVE,
    OPT_RECBUF
};
enum { BUFFER_INHERITED = 1, BUFFER_HERE };
enum packet { PB_RAW, PB_1, PB_2, PB_4, PB_LINE, PB_ERLANG };
enum { PB_HTTP = 11, PB_HTTP_BIN, PB_HTTPH, PB_HTTPH_BIN };
enum state { ST_OPEN, ST_CONNECTING, ST_CONNECTED, ST_LISTENING, ST_CLOSED, ST_KEPT };
enum active { A_FALSE, A_TRUE, A_ONCE, A_COUNT };

enum { READ_BUF = 65536, BIG_READ = 16384, MAX_EVENTS = 256, MAX_IOV = 1024, MAX_VEC = 16384,
       MAX_RECV = 64 * 1024 * 1024, SEND_SLICE = 1024 * 1024,
       RECV_SLICE = 1024 * 1024, PACKETS = 256, WHEEL = 512,
       FOLLOW_CALLS = 16, FOLLOW_MS = 100 };

typedef struct lane lane_t;
typedef struct relay relay_t;

/* A process that waits in accept, send or close. */
typedef struct waiter {
    struct waiter *next;
    ErlNifPid pid;
    uint64_t ticket;
    ErlNifMonitor mon; /* acceptors only */
    bool woken;
    bool empty; /* waits for an empty queue, not for the low watermark */
    bool file;  /* a sendfile that waits for room in the kernel */
    bool room;  /* wants to be told of room; no call of it goes on then */
} waiter_t;

/* Bytes read but not yet delivered: [start, end) of bin.data. */
typedef struct {
    ErlNifBinary bin;
    size_t start, end;
    bool used;
} inbuf_t;

typedef struct sock {
    pthread_mutex_t mtx;
    int fd;
    int file; /* what a running sendfile reads, or -1 */
    uint8_t state, active, family;
    bool registered : 1; /* in the lane's poll set */
    bool readable : 1;
    bool cut : 1;       /* delivery stopped at its budget: whole packets are left */
    bool ended : 1;     /* the end was read; packets Erlang decodes go out before it */
    bool told : 1;      /* the waiting reader has been woken */
    bool lingers : 1;   /* SO_LINGER with a time: close(2) would block */
    bool big : 1;       /* the last read was a large one */
    bool hup : 1;       /* EPOLLRDHUP, HUP or ERR seen: a short read is not the end */
    bool rd_closed : 1; /* end of file delivered, exit_on_close false */
    bool wr_shut : 1;
    /* A shutdown that waited behind the queue: only after such a one is EPIPE
     * not taken for a reset, as in inet. */
    bool shut_queued : 1;
    bool pend_shut : 1; /* shutdown(write) waits behind the queue */
    bool pend_shut_rd : 1;
    bool http_hdr : 1; /* packet http: the first line has been taken */
    bool watched : 1;  /* somebody monitors this socket: tell at close */
    bool owned : 1;
    bool delivered : 1; /* the owner has been sent something */
    bool resetby : 1; /* the peer reset us, show_econnreset not yet told */
    /* Ended while passive: the descriptor is closed, and as the port of inet
     * the socket stays its owner's, with its options and figures, until it is
     * closed or the owner ends. The state is ST_CLOSED; ST_KEPT is what Erlang
     * is told. The next recv or send that has not been told says closed, later
     * ones enotconn. */
    bool kept : 1, gone_recv : 1, gone_send : 1;
    bool told_closed : 1; /* tcp_closed has been sent: never twice */
    bool monitored : 1;
    bool linger0 : 1;
    bool sendfile : 1;
    bool file_began : 1; /* what was queued before the sendfile has gone */
    bool out_edge : 1; /* EPOLLOUT came while sendfile(2) ran without the mutex */
    bool moving : 1; /* out of the old lane's set, not yet in the new one's */
    bool orphan : 1;
    int16_t count;       /* A_COUNT */
    uint8_t foreign;     /* calls in a row from another lane */
    lane_t *lane;
    int64_t moved_ms;
    ErlNifPid owner;
    ErlNifMonitor mon;
    int priority; /* SO_PRIORITY as set: the one option accept4 does not inherit */
    int32_t opt[OPT_STORED];
    inbuf_t in;
    int end_err;      /* with `ended`: errno, or 0 for the end of file */
    size_t need;      /* bytes without which Erlang finds no packet in `in` */
    uint32_t version; /* changes whenever bytes leave the front of `in` */
    ErlNifPid reader;
    uint64_t reader_ticket; /* 0: nobody reads */
    uint64_t ticket;
    ErlNifIOQueue *q;
    waiter_t *waiters; /* acceptors of a listener, else senders */
    relay_t *relay;
    struct sock *prev, *next;     /* lane list, under lane->list_mtx */
    atomic_bool pending;          /* on some lane's pending list; not under mtx */
    struct sock *pending_next;    /* lane's pending list */
    struct sock *dead_next;       /* lane's list of the dead */
    uint64_t recv_cnt, recv_oct, send_cnt, send_oct;
    uint32_t recv_max, send_max;
    double recv_dvi;
} sock_t;

/* What an accepted socket takes over from its listener. */
typedef struct {
    int32_t opt[OPT_STORED];
    bool linger0, lingers;
    int priority;
} inherit_t;

/* What a lane counts; each is written by one thread at a time. */
enum lane_stat {
    S_TURNS, S_EMPTY, S_SLEEPS, S_WAKES, S_WAITS, S_EVENTS, S_EV_MIN, S_EV_MAX, S_STALE,
    S_RECV, S_SEND, S_EAGAIN, S_RECV_BYTES, S_SEND_BYTES, S_ACCEPTED, S_MOVED, S_RELAYS,
    S_COUNT
};

typedef struct dead {
    struct dead *next;
    sock_t *sock;
} dead_t;

typedef struct node node_t;

struct lane {
    node_t *node;
    int index; /* scheduler number, from 1 */
    int epfd;
    _Atomic(sock_t *) pending;    /* pushed by any thread, taken by the poller */
    _Atomic(sock_t *) dead;       /* closed sockets whose open reference is due */
    _Atomic(dead_t *) left;       /* the same for sockets that moved away */
    atomic_int asleep;
    unsigned naps;
    pthread_mutex_t list_mtx;
    sock_t *list;
    int64_t sockets;
    /* Held for a turn, for going to sleep and for a slice of closing: while the
     * lane passes from one poller to another, both may be running. Everything
     * below that is not atomic belongs to who holds it. */
    pthread_mutex_t turn_mtx;
    pthread_mutex_t pid_mtx; /* poller, has_poller: written with both mutexes held */
    ErlNifPid poller;
    bool has_poller;
    bool bound; /* the poller runs on the lane's scheduler only */
    atomic_bool stopped;
    atomic_bool adopted; /* a new poller: what the old one knew is told again */
    int ev_i, ev_n;
    struct epoll_event evs[MAX_EVENTS];
    int64_t now_ms;
    relay_t *wheel[WHEEL]; /* relays by the second in which they may expire */
    int64_t wheel_s;       /* the last second that was looked at */
    int64_t timed;         /* relays on the wheel */
    _Atomic uint64_t stat[S_COUNT];
};

struct relay {
    ErlNifPid pid;
    ErlNifMonitor mon;
    lane_t *lane;
    sock_t *s[2]; /* referenced; NULL when the relay has ended */
    struct {
        unsigned char *data; /* exists only while the way on is blocked */
        size_t off, len;
    } pend[2];            /* [i]: read from s[i], for s[1 - i] */
    _Atomic uint64_t bytes[2]; /* [i]: delivered from s[i] to s[1 - i] */
    bool eof[2], shut[2];
    bool half_close;
    atomic_int stop; /* 1 flush, 2 reset: asked for from outside */
    int64_t idle_ms, half_ms, start_ms;
    _Atomic int64_t last_ms;
    int64_t half_since;
    pthread_mutex_t mtx; /* guards s[] against relay_info and the down callback */
    relay_t *prev, *next;
    int slot; /* wheel slot or -1 */
};

/* One per loaded library, handed on at upgrade. */
struct node {
    uint64_t layout; /* of the structures: an upgrade must have the same */
    pthread_mutex_t mtx;
    int lanes_n;
    int buffer; /* what `buffer` is by default in this release */
    bool migrates; /* see lane_sleep */
    _Atomic(lane_t *) *lanes; /* index 1..lanes_n */
};

extern ErlNifResourceType *sock_type, *lane_type, *relay_type;
/* The lane of this scheduler thread, set by its pinned poller each turn. */
extern _Thread_local int my_lane __attribute__((tls_model("initial-exec")));

struct atoms {
    ERL_NIF_TERM ok, error, inet, module, tcp, data, tcp_closed, tcp_error, tcp_passive, wait,
        async, ready, closed, timeout, einval, true_, false_, once, decode, wake, orphan, gone,
        undefined, nil, local, inet4, inet6, eagain, more, too_long, relay, reason, to_a, to_b,
        ms, normal, reset, idle, half_close, busy, pending, not_owner, badarg, enotconn, ealready,
        enomem, follow, idle_ms, stale, http, ssl_tls, sleep, infinity, flush, no_lane, stop,
        keep, elsewhere, full, queued, armed;
};
extern struct atoms am;

/* Who calls: the environment for enif_send, and the lane whose counters to use. */
typedef struct {
    ErlNifEnv *env; /* calling process or callback */
    lane_t *lane;   /* lane of this thread or NULL */
} ctx_t;

static inline void count(lane_t *l, enum lane_stat k, uint64_t n)
{
    if (l)
        atomic_store_explicit(&l->stat[k],
                              atomic_load_explicit(&l->stat[k], memory_order_relaxed) + n,
                              memory_order_relaxed);
}

/* For counts that callers of any thread bump, and seldom. */
static inline void count_shared(lane_t *l, enum lane_stat k, int64_t n)
{
    atomic_fetch_add_explicit(&l->stat[k], (uint64_t)n, memory_order_relaxed);
}

/* A call that moved n bytes gives its part of the timeslice back: 10 us or so
 * for 10 KB, of 1 ms. */
static inline void pay(ErlNifEnv *env, size_t n)
{
    if (n >= 8192)
        enif_consume_timeslice(env, n > 1000000 ? 100 : (int)(n / 10000) + 1);
}

/* erlane_sock.c: life of a socket. All but sock_new want s->mtx held. */
sock_t *sock_new(lane_t *l, int fd, int family, int state);
void sock_inherit(sock_t *s, const inherit_t *from);
void sock_watch_owner(ctx_t *c, sock_t *s);
void sock_own(ctx_t *c, sock_t *s, const ErlNifPid *pid);
void sock_disown(ctx_t *c, sock_t *s);
int sock_register(sock_t *s);
void sock_close(ctx_t *c, sock_t *s, ERL_NIF_TERM why);
void sock_dtor(ErlNifEnv *env, void *obj);
void sock_down(ErlNifEnv *env, void *obj, ErlNifPid *pid, ErlNifMonitor *mon);
void sock_notify_reader(ctx_t *c, sock_t *s, ERL_NIF_TERM what);
void sock_wake_acceptor(ctx_t *c, sock_t *s);
waiter_t *sock_wait(sock_t *s, const ErlNifPid *pid);
void sock_orphaned(ctx_t *c, sock_t *s);
bool sock_unwait(ctx_t *c, sock_t *s, uint64_t ticket);
void sock_wake_senders(ctx_t *c, sock_t *s, ERL_NIF_TERM what);
void sock_room(ctx_t *c, sock_t *s);
size_t sock_queued(const sock_t *s);
ERL_NIF_TERM sock_term(ErlNifEnv *env, sock_t *s);
void send_async(ctx_t *c, sock_t *s, const ErlNifPid *to, uint64_t ticket, ERL_NIF_TERM what);
void ctx_send(ctx_t *c, const ErlNifPid *to, ERL_NIF_TERM msg);

/* erlane_inbuf.c: what was read and not yet delivered. s->mtx held. */
bool in_room(inbuf_t *in, size_t n, size_t reserve);
bool in_append(inbuf_t *in, const void *p, size_t n, size_t reserve);
bool in_push_front(inbuf_t *in, const void *p, size_t n);
void in_drop(sock_t *s, size_t n);
void in_free(inbuf_t *in);
/* Length of the first packet in p[0, n): > 0 whole packet, 0 more is needed
 * (*need: bytes of the whole packet if known, else 0), < 0 too long. */
int64_t pkt_length(const sock_t *s, const unsigned char *p, size_t n, size_t *need);

/* erlane_read.c: s->mtx held. */
void io_active_read(ctx_t *c, sock_t *s, unsigned char *buf, ERL_NIF_TERM *decode);
int io_take(ErlNifEnv *env, sock_t *s, unsigned char *buf, size_t len, ERL_NIF_TERM *out,
            ctx_t *c);
bool io_deliver_term(ctx_t *c, sock_t *s, ERL_NIF_TERM msg);

/* erlane_io.c: ends, and the send queue. s->mtx held. */
ERL_NIF_TERM errno_term(ErlNifEnv *env, int err);
bool io_kept(ctx_t *c, sock_t *s);
bool io_present(ctx_t *c, sock_t *s);
void io_keep(ctx_t *c, sock_t *s);
void io_ended(ctx_t *c, sock_t *s);
void io_read_end(ctx_t *c, sock_t *s, int err);
void io_send_end(ctx_t *c, sock_t *s, int err);
void io_flush(ctx_t *c, sock_t *s);
void io_after_queue(ctx_t *c, sock_t *s);

/* erlane_lane.c */
void lane_push(ctx_t *c, lane_t *l, sock_t *s);
void lane_bury(lane_t *l, sock_t *s);
int lane_leave(lane_t *l, sock_t *s);
void lane_adopt(ctx_t *c, lane_t *l);
lane_t *lane_here(node_t *n);
void lane_link(sock_t *s);
void lane_unlink(sock_t *s);
ERL_NIF_TERM lane_turn(ErlNifEnv *env, lane_t *l);
int lane_sleep(ErlNifEnv *env, lane_t *l, int64_t *wait_ms);
void lane_wake(ctx_t *c, lane_t *l);
void lane_dtor(ErlNifEnv *env, void *obj);
void lane_stop_cb(ErlNifEnv *env, void *obj, ErlNifEvent fd, int direct);
lane_t *lane_open(ErlNifEnv *env, node_t *n, int index);
void lane_drain_dead(lane_t *l);

/* erlane_relay.c */
relay_t *relay_new(void);
int relay_start(ctx_t *c, relay_t *r);
void relay_event(ctx_t *c, relay_t *r, sock_t *s, uint32_t ev, unsigned char *buf);
void relay_tick(ctx_t *c, lane_t *l, unsigned char *buf);
void relay_dtor(ErlNifEnv *env, void *obj);
void relay_down(ErlNifEnv *env, void *obj, ErlNifPid *pid, ErlNifMonitor *mon);
void relay_ask_stop(ctx_t *c, relay_t *r, int how);
#endif
