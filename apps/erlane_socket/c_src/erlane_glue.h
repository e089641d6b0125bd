/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the door share. Answers of a NIF function: ok | {ok, T} |
 * {error, Atom} | {wait, Ticket} and a few atoms, each said over the function.
 * Terms of a wrong type are badarg, as for any NIF. */
#ifndef ERLANE_GLUE_H
#define ERLANE_GLUE_H

#include "erlane_sock.h"

#define NIF(name) ERL_NIF_TERM name(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
#define BADARG return enif_make_badarg(env)

ERL_NIF_TERM error(ErlNifEnv *env, ERL_NIF_TERM why);
ERL_NIF_TERM ok(ErlNifEnv *env, ERL_NIF_TERM t);
ERL_NIF_TERM posix(ErlNifEnv *env, int err);
ERL_NIF_TERM result(ErlNifEnv *env, int r);
ERL_NIF_TERM addr_term(ErlNifEnv *env, const struct sys_addr *a);
bool get_addr(ErlNifEnv *env, ERL_NIF_TERM t, struct sys_addr *a);
ERL_NIF_TERM active_term(ErlNifEnv *env, const sock_t *s);
/* True when the owner has called often enough from another lane. */
bool wants_to_follow(ErlNifEnv *env, sock_t *s, lane_t *here);
void change_lane(sock_t *s, lane_t *l);

static inline bool get_sock(ErlNifEnv *env, ERL_NIF_TERM t, sock_t **s)
{
    return enif_get_resource(env, t, sock_type, (void **)s);
}

static inline bool get_pid(ErlNifEnv *env, ErlNifPid *pid) { return enif_self(env, pid) != NULL; }

static inline node_t *node(ErlNifEnv *env) { return enif_priv_data(env); }

static inline ctx_t ctx(ErlNifEnv *env)
{
    ctx_t c = {.env = env, .lane = lane_here(node(env))};
    return c;
}

/* erlane_nif_lane.c */
NIF(n_lane_open);
NIF(n_lane_poll);
NIF(n_lane_turn);
NIF(n_lane_sleep);
NIF(n_lane_woke);
NIF(n_lane_close);
NIF(n_lane_here);
NIF(n_lane_stats);
NIF(n_lane_list);

/* erlane_nif_open.c */
NIF(n_open);
NIF(n_fdopen);
NIF(n_bind);
NIF(n_listen);
NIF(n_connect);
NIF(n_connected);
NIF(n_accept);
NIF(n_cancel);
NIF(n_leave);
NIF(n_join);

/* erlane_nif_send.c; the first five, with s->mtx held, also for erlane_nif_fan.c. */
/* The length in front of a packet: its bytes, or -EMSGSIZE. */
int send_header(const sock_t *s, size_t len, unsigned char *h);
/* Bytes and binaries of a list; *bad if it is none, or of more than MAX_VEC. */
size_t send_size(ErlNifEnv *env, ERL_NIF_TERM list, int *elems, bool *bad);
/* Writes at once what the kernel takes of at most a slice (*asked): 0 if nothing. */
ssize_t send_now(ErlNifEnv *env, sock_t *s, lane_t *here, const unsigned char *h, size_t hn,
                 ERL_NIF_TERM data, const ErlNifBinary *one, bool more, size_t *asked);
/* Queues all but the first skip bytes of header and binaries, which are shared. */
bool send_queue(ErlNifEnv *env, sock_t *s, const unsigned char *h, size_t hn,
                ERL_NIF_TERM data, size_t skip);
void send_count(sock_t *s, size_t n);
NIF(n_send);
NIF(n_sendfile_begin);
NIF(n_sendfile_step);
NIF(n_sendfile_end);

/* erlane_nif_fan.c */
NIF(n_send_each);

/* erlane_nif_recv.c */
NIF(n_recv);
NIF(n_peek);
NIF(n_take);
NIF(n_need);
NIF(n_fail);
NIF(n_unrecv);
NIF(n_set_active);

/* erlane_nif_opt.c */
NIF(n_close);
NIF(n_close_now);
NIF(n_shutdown);
NIF(n_setsockopt);
NIF(n_getsockopt);
NIF(n_setopt);
NIF(n_getopt);
NIF(n_name);
NIF(n_stat);
NIF(n_info);
NIF(n_watch);
NIF(n_handover);
NIF(n_own);
NIF(n_give);
NIF(n_owner);

/* erlane_nif_relay.c */
NIF(n_relay);
NIF(n_relay_info);
NIF(n_relay_stop);
NIF(n_faults);
#endif
