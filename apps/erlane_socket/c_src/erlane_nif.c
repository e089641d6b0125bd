/* SPDX-License-Identifier: Apache-2.0 */
/* The door: every argument is checked in erlane_nif*.c, terms become C values
 * and back. Here: terms that all of them need, loading, and the table. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/un.h>

#include "erlane_glue.h"

ErlNifResourceType *sock_type, *lane_type, *relay_type;
struct atoms am;

/* Terms ------------------------------------------------------------------ */

ERL_NIF_TERM error(ErlNifEnv *env, ERL_NIF_TERM why)
{
    return enif_make_tuple2(env, am.error, why);
}

ERL_NIF_TERM ok(ErlNifEnv *env, ERL_NIF_TERM t) { return enif_make_tuple2(env, am.ok, t); }

/* The field's name of an errno: econnreset for ECONNRESET. */
ERL_NIF_TERM errno_term(ErlNifEnv *env, int err)
{
    const char *n = strerrorname_np(err);
    char low[32] = "unknown";
    size_t i = 0;
    for (; n && n[i] && i < sizeof low - 1; i++)
        low[i] = (char)(n[i] >= 'A' && n[i] <= 'Z' ? n[i] + 32 : n[i]);
    if (n)
        low[i] = 0;
    return enif_make_atom(env, low);
}

ERL_NIF_TERM posix(ErlNifEnv *env, int err)
{
    if (err < 0)
        err = -err;
    return error(env, err == ENOTCONN ? am.enotconn : errno_term(env, err));
}

ERL_NIF_TERM result(ErlNifEnv *env, int r) { return r < 0 ? posix(env, r) : am.ok; }

ERL_NIF_TERM addr_term(ErlNifEnv *env, const struct sys_addr *a)
{
    ERL_NIF_TERM e[8];
    if (a->ss.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&a->ss;
        const unsigned char *b = (const unsigned char *)&in->sin_addr;
        for (int i = 0; i < 4; i++)
            e[i] = enif_make_int(env, b[i]);
        return enif_make_tuple2(env, enif_make_tuple_from_array(env, e, 4),
                                enif_make_int(env, ntohs(in->sin_port)));
    }
    if (a->ss.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&a->ss;
        for (int i = 0; i < 8; i++)
            e[i] = enif_make_int(env, in->sin6_addr.s6_addr[2 * i] << 8 |
                                          in->sin6_addr.s6_addr[2 * i + 1]);
        return enif_make_tuple2(env, enif_make_tuple_from_array(env, e, 8),
                                enif_make_int(env, ntohs(in->sin6_port)));
    }
    if (a->ss.ss_family == AF_UNIX) {
        const struct sockaddr_un *un = (const struct sockaddr_un *)&a->ss;
        size_t off = offsetof(struct sockaddr_un, sun_path);
        size_t n = a->len > off ? a->len - off : 0;
        if (n > 0 && un->sun_path[0] != 0)
            n = strnlen(un->sun_path, n); /* a path; else an abstract name */
        ERL_NIF_TERM t;
        memcpy(enif_make_new_binary(env, n, &t), un->sun_path, n);
        return enif_make_tuple2(env, am.local, t);
    }
    return am.undefined;
}

/* {inet, {A,B,C,D}, Port} | {inet6, {A..H}, Port, Flow, Scope} | {local, Bin} */
bool get_addr(ErlNifEnv *env, ERL_NIF_TERM t, struct sys_addr *a)
{
    const ERL_NIF_TERM *e, *ip;
    int n, k, v;
    unsigned port, flow = 0, scope = 0;
    memset(a, 0, sizeof *a);
    if (!enif_get_tuple(env, t, &n, &e) || n < 2)
        return false;
    if (e[0] == am.local && n == 2) {
        struct sockaddr_un *un = (struct sockaddr_un *)&a->ss;
        ErlNifBinary b;
        if (!enif_inspect_binary(env, e[1], &b) || b.size > sizeof un->sun_path)
            return false;
        un->sun_family = AF_UNIX;
        memcpy(un->sun_path, b.data, b.size);
        a->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + b.size);
        if (b.size > 0 && b.data[0] != 0 && b.size < sizeof un->sun_path)
            a->len++;
        return true;
    }
    if (n < 3 || !enif_get_tuple(env, e[1], &k, &ip) || !enif_get_uint(env, e[2], &port) ||
        port > 65535)
        return false;
    if (e[0] == am.inet4 && n == 3 && k == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)&a->ss;
        unsigned char *b = (unsigned char *)&in->sin_addr;
        for (int i = 0; i < 4; i++) {
            if (!enif_get_int(env, ip[i], &v) || v < 0 || v > 255)
                return false;
            b[i] = (unsigned char)v;
        }
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
        a->len = sizeof *in;
        return true;
    }
    if (e[0] == am.inet6 && n == 5 && k == 8 && enif_get_uint(env, e[3], &flow) &&
        enif_get_uint(env, e[4], &scope)) {
        struct sockaddr_in6 *in = (struct sockaddr_in6 *)&a->ss;
        for (int i = 0; i < 8; i++) {
            if (!enif_get_int(env, ip[i], &v) || v < 0 || v > 65535)
                return false;
            in->sin6_addr.s6_addr[2 * i] = (unsigned char)(v >> 8);
            in->sin6_addr.s6_addr[2 * i + 1] = (unsigned char)v;
        }
        in->sin6_family = AF_INET6;
        in->sin6_port = htons((uint16_t)port);
        in->sin6_flowinfo = htonl(flow);
        in->sin6_scope_id = scope;
        a->len = sizeof *in;
        return true;
    }
    return false;
}

/* Loading ---------------------------------------------------------------- */

static void make_atoms(ErlNifEnv *env)
{
#define A(field, name) am.field = enif_make_atom(env, name)
    A(ok, "ok"), A(error, "error"), A(inet, "$inet"), A(module, "erlane_tcp"), A(tcp, "tcp");
    A(data, "data"), A(tcp_closed, "tcp_closed"), A(tcp_error, "tcp_error");
    A(tcp_passive, "tcp_passive"), A(wait, "wait"), A(async, "erlane_async");
    A(ready, "ready"), A(closed, "closed"), A(timeout, "timeout"), A(einval, "einval");
    A(true_, "true"), A(false_, "false"), A(once, "once"), A(decode, "decode");
    A(wake, "wake"), A(orphan, "orphan"), A(gone, "gone"), A(undefined, "undefined");
    A(nil, "none"), A(local, "local"), A(inet4, "inet"), A(inet6, "inet6"), A(eagain, "eagain");
    A(more, "more"), A(too_long, "too_long"), A(relay, "erlane_relay"), A(reason, "reason");
    A(to_a, "to_a"), A(to_b, "to_b"), A(ms, "ms"), A(normal, "normal"), A(reset, "reset");
    A(idle, "idle"), A(half_close, "half_close"), A(busy, "busy"), A(pending, "pending");
    A(not_owner, "not_owner"), A(badarg, "badarg"), A(enotconn, "enotconn");
    A(ealready, "ealready"), A(enomem, "enomem"), A(follow, "follow"), A(idle_ms, "idle_ms");
    A(elsewhere, "elsewhere");
    A(stale, "stale"), A(http, "http"), A(ssl_tls, "ssl_tls"), A(sleep, "sleep");
    A(infinity, "infinity"), A(flush, "flush"), A(stop, "stop"), A(no_lane, "no_lane");
    A(keep, "keep"), A(full, "full"), A(queued, "queued");
    A(armed, "armed");
#undef A
}

/* Changes when the structures do. */
#define LAYOUT ((uint64_t)sizeof(sock_t) << 40 | (uint64_t)sizeof(lane_t) << 16 | sizeof(relay_t))

/* An upgrade in the same image finds the same types: then nothing is written
 * that running calls read. */
static void keep(ErlNifResourceType **at, ErlNifResourceType *type)
{
    if (*at != type)
        *at = type;
}

static bool open_types(ErlNifEnv *env, ErlNifResourceFlags how)
{
    ErlNifResourceTypeInit sock = {.dtor = sock_dtor, .down = sock_down};
    ErlNifResourceTypeInit lane = {.dtor = lane_dtor, .stop = lane_stop_cb};
    ErlNifResourceTypeInit relay = {.dtor = relay_dtor, .down = relay_down};
    keep(&sock_type, enif_open_resource_type_x(env, "erlane_sock", &sock, how, NULL));
    keep(&lane_type, enif_open_resource_type_x(env, "erlane_lane", &lane, how, NULL));
    keep(&relay_type, enif_open_resource_type_x(env, "erlane_relay", &relay, how, NULL));
    return sock_type && lane_type && relay_type;
}

static int load(ErlNifEnv *env, void **priv, ERL_NIF_TERM info)
{
    int schedulers, buffer, release, arity;
    const ERL_NIF_TERM *e;
    if (!enif_get_tuple(env, info, &arity, &e) || arity != 3 ||
        !enif_get_int(env, e[0], &schedulers) || schedulers < 1 ||
        !enif_get_int(env, e[1], &buffer) || !enif_get_int(env, e[2], &release))
        return -1;
    node_t *n = enif_alloc(sizeof *n);
    if (n == NULL)
        return -1;
    memset(n, 0, sizeof *n);
    pthread_mutex_init(&n->mtx, NULL);
    n->layout = LAYOUT;
    n->lanes_n = schedulers;
    n->buffer = buffer;
    n->migrates = release >= 28;
    n->lanes = enif_alloc(sizeof *n->lanes * (size_t)(schedulers + 1));
    if (n->lanes == NULL)
        return -1;
    for (int i = 0; i <= schedulers; i++)
        atomic_init(&n->lanes[i], NULL);
    make_atoms(env);
    /* Takeover: a module that was purged and loaded again finds sockets that
     * outlived it. */
    if (!open_types(env, ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER))
        return -1;
    *priv = n;
    return 0;
}

/* New code while the old still runs: the lanes go on, the node is handed on. */
static int upgrade(ErlNifEnv *env, void **priv, void **old, ERL_NIF_TERM info)
{
    (void)info;
    node_t *n = *old;
    if (am.ok == 0) /* another image; in the same one calls are reading them now */
        make_atoms(env);
    if (n->layout != LAYOUT)
        return -1; /* living sockets would be misread: restart the node instead */
    if (!open_types(env, ERL_NIF_RT_TAKEOVER))
        return -1;
    *priv = n;
    return 0;
}

/* The node may live on in newer code and in lanes; it is a few words. */
static void unload(ErlNifEnv *env, void *priv)
{
    (void)env, (void)priv;
}

#define DIRTY_IO ERL_NIF_DIRTY_JOB_IO_BOUND
static ErlNifFunc funcs[] = {
    {"lane_open", 1, n_lane_open, 0},
    {"lane_poll", 2, n_lane_poll, 0},
    {"lane_turn", 1, n_lane_turn, 0},
    {"lane_sleep", 1, n_lane_sleep, 0},
    {"lane_woke", 1, n_lane_woke, 0},
    {"lane_close", 1, n_lane_close, 0},
    {"lane_here", 0, n_lane_here, 0},
    {"lane_stats", 1, n_lane_stats, 0},
    {"lane_list", 1, n_lane_list, ERL_NIF_DIRTY_JOB_CPU_BOUND},
    {"open", 4, n_open, 0},
    {"fdopen", 2, n_fdopen, 0},
    {"bind", 2, n_bind, 0},
    {"listen", 2, n_listen, 0},
    {"connect", 2, n_connect, 0},
    {"connected", 2, n_connected, 0},
    {"accept", 2, n_accept, 0},
    {"cancel", 2, n_cancel, 0},
    {"leave", 1, n_leave, 0},
    {"join", 1, n_join, 0},
    {"send", 3, n_send, 0},
    {"send_each", 4, n_send_each, 0},
    {"sendfile_begin", 2, n_sendfile_begin, 0},
    {"sendfile_step", 3, n_sendfile_step, DIRTY_IO},
    {"sendfile_end", 1, n_sendfile_end, 0},
    {"recv", 3, n_recv, 0},
    {"peek", 1, n_peek, 0},
    {"take", 5, n_take, 0},
    {"need", 4, n_need, 0},
    {"fail", 3, n_fail, 0},
    {"unrecv", 2, n_unrecv, 0},
    {"active", 2, n_set_active, 0},
    {"close", 1, n_close, 0},
    {"close_now", 2, n_close_now, 0},
    {"shutdown", 2, n_shutdown, 0},
    {"setsockopt", 4, n_setsockopt, 0},
    {"getsockopt", 4, n_getsockopt, 0},
    {"setopt", 3, n_setopt, 0},
    {"getopt", 2, n_getopt, 0},
    {"name", 2, n_name, 0},
    {"stat", 1, n_stat, 0},
    {"info", 1, n_info, 0},
    {"watch", 1, n_watch, 0},
    {"handover", 1, n_handover, 0},
    {"own", 2, n_own, 0},
    {"give", 2, n_give, 0},
    {"owner", 1, n_owner, 0},
    {"relay", 7, n_relay, 0},
    {"relay_info", 1, n_relay_info, 0},
    {"relay_stop", 2, n_relay_stop, 0},
    {"faults", 1, n_faults, 0},
};

ERL_NIF_INIT(erlane_nif, funcs, load, NULL, upgrade, unload)
