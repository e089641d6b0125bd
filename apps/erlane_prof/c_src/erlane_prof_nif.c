/* SPDX-License-Identifier: Apache-2.0 */
/* The door of a trace: what the VM calls for each event, and what its reader calls. Terms become
 * words here. An atom is the same word in all of a VM's life, a pid or port of its own too. */
#include <string.h>

#include <erl_nif.h>

#include "erlane_ring.h"

/* Of what trace_read gives out; the agent on the other side of the door asks for it. */
enum { FORMAT = 2 };
enum { PIECE = READ_EVENTS * EVENT_BYTES + 3 * NAME_BYTES };

#define NIF(name) static ERL_NIF_TERM name(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
#define BADARG return enif_make_badarg(env)

static ErlNifResourceType *trace_type;

static struct {
    ERL_NIF_TERM ok, trace, remove, trace_status, match_spec_result, extra, busy, port;
} am;

/* The kinds of events by their tag, and those of ports; what is in none of these is another one. */
typedef struct {
    const char *name;
    enum kind kind;
    ERL_NIF_TERM tag;
} tag_t;

static tag_t kinds[] = {{"call", K_CALL, 0},
                        {"return_to", K_RETURN_TO, 0},
                        {"in", K_IN, 0},
                        {"out", K_OUT, 0},
                        {"receive", K_RECEIVED, 0},
                        {"send", K_SENT, 0},
                        {"gc_minor_start", K_GC_BEGINS, 0},
                        {"gc_minor_end", K_GC_ENDS, 0},
                        {"gc_major_start", K_GC_BEGINS, 0},
                        {"gc_major_end", K_GC_ENDS, 0},
                        {"spawned", K_SPAWNED, 0},
                        {"in_exiting", K_IN, 0},
                        {"out_exiting", K_OUT, 0},
                        {"out_exited", K_EXITED, 0}};

static tag_t port_kinds[] = {{"in", K_TASK_BEGINS, 0},
                             {"out", K_TASK_ENDS, 0},
                             {"open", K_OPENED, 0},
                             {"closed", K_CLOSED, 0}};

enum {
    KINDS = sizeof kinds / sizeof kinds[0],
    PORT_KINDS = sizeof port_kinds / sizeof port_kinds[0]
};

static bool get_trace(ErlNifEnv *env, ERL_NIF_TERM term, trace_t **t) {
    return enif_get_resource(env, term, trace_type, (void **)t);
}

/* Events ------------------------------------------------------------------ */

/* The one answer that the VM takes as an end is that to trace_status; it asks that when flags are
 * set, and when it has reason to. What trace() gets after the end is left there. */
NIF(n_enabled) {
    trace_t *t;
    (void)argc;
    if (argv[0] != am.trace_status)
        return am.trace;
    return get_trace(env, argv[1], &t) && !atomic_load(&t->closed) ? am.trace : am.remove;
}

static enum kind kind_of(const tag_t *tags, int n, ERL_NIF_TERM tag, enum kind other) {
    for (int i = 0; i < n; i++)
        if (tags[i].tag == tag)
            return tags[i].kind;
    return other;
}

static bool pack(ERL_NIF_TERM m, ERL_NIF_TERM f, int a, fun_t *fun) {
    fun->m = (uint32_t)m;
    fun->f = (uint32_t)f;
    fun->a = (uint8_t)a;
    return fun->m == m && fun->f == f && fun->a == a;
}

/* {M, F, Arity}; anything else is none. False if it fits in no record. */
static bool get_fun(ErlNifEnv *env, ERL_NIF_TERM term, fun_t *fun) {
    const ERL_NIF_TERM *e;
    int n, a;
    memset(fun, 0, sizeof *fun);
    if (!enif_get_tuple(env, term, &n, &e) || n != 3 || !enif_get_int(env, e[2], &a))
        return true;
    return pack(e[0], e[1], a, fun);
}

/* {M, F, Args}, which a new process begins with. */
static bool get_begun(ErlNifEnv *env, ERL_NIF_TERM options, fun_t *fun) {
    ERL_NIF_TERM term;
    const ERL_NIF_TERM *e;
    int n;
    unsigned a;
    memset(fun, 0, sizeof *fun);
    if (!enif_get_map_value(env, options, am.extra, &term) || !enif_get_tuple(env, term, &n, &e) ||
        n != 3 || !enif_get_list_length(env, e[2], &a) || a > 255)
        return true;
    return pack(e[0], e[1], (int)a, fun);
}

/* A task of a port, or what it was opened with, as a function of a module that nobody has. No atom
 * is none: the VM does not tell the tasks of the port's own queue. */
static bool get_word(ErlNifEnv *env, ERL_NIF_TERM term, fun_t *fun) {
    memset(fun, 0, sizeof *fun);
    return !enif_is_atom(env, term) || pack(am.port, term, 0, fun);
}

static uint64_t get_who(ErlNifEnv *env, ERL_NIF_TERM term) {
    ErlNifPid pid;
    ErlNifPort port;
    if (enif_get_local_pid(env, term, &pid))
        return enif_make_pid(env, &pid);
    return enif_get_local_port(env, term, &port) ? port.port_id : 0;
}

static const fun_t no_fun;

static void keep(trace_t *t, bool fits, enum kind kind, uint64_t who, fun_t f, fun_t caller) {
    if (fits && who)
        trace_put(t, kind, who, f, caller);
    else
        trace_drop(t);
}

static void port_event(ErlNifEnv *env, trace_t *t, const ERL_NIF_TERM argv[], ErlNifPort port) {
    enum kind kind = kind_of(port_kinds, PORT_KINDS, argv[0], K_PORT_OTHER);
    ERL_NIF_TERM name;
    fun_t f = no_fun;
    bool fits = true;
    if (kind == K_TASK_BEGINS || kind == K_TASK_ENDS)
        fits = get_word(env, argv[3], &f);
    else if (kind == K_OPENED && enif_get_map_value(env, argv[4], am.extra, &name))
        fits = get_word(env, name, &f);
    keep(t, fits, kind, port.port_id, f, no_fun);
}

NIF(n_trace) {
    trace_t *t;
    fun_t f = no_fun, caller = no_fun;
    ERL_NIF_TERM returns;
    ErlNifPort port;
    bool fits = true;
    if (!get_trace(env, argv[1], &t))
        return am.ok;
    if (enif_get_local_port(env, argv[2], &port)) {
        port_event(env, t, argv, port);
        return am.ok;
    }
    enum kind kind = kind_of(kinds, KINDS, argv[0], K_OTHER);
    switch (kind) {
    case K_CALL:
        fits = get_fun(env, argv[3], &f) && f.m;
        if (!enif_get_map_value(env, argv[argc - 1], am.match_spec_result, &returns))
            kind = K_CALL_TOP;
        else
            fits = get_fun(env, returns, &caller) && fits;
        break;
    case K_RETURN_TO:
    case K_IN:
    case K_OUT:
        fits = get_fun(env, argv[3], &f);
        break;
    case K_SPAWNED:
        fits = get_begun(env, argv[argc - 1], &f);
        break;
    default:
        break;
    }
    keep(t, fits, kind, get_who(env, argv[2]), f, caller);
    return am.ok;
}

/* The reader -------------------------------------------------------------- */

NIF(n_format) {
    (void)argc;
    (void)argv;
    return enif_make_int(env, FORMAT);
}

/* A trace whose rings have so many bytes each. */
NIF(n_open) {
    unsigned long bytes;
    (void)argc;
    if (!enif_get_ulong(env, argv[0], &bytes) || bytes > 1ul << 32)
        BADARG;
    trace_t *t = enif_alloc_resource(trace_type, sizeof *t);
    if (!t)
        BADARG;
    /* The destructor is called in any case. */
    bool done = trace_init(t, bytes);
    ERL_NIF_TERM term = enif_make_resource(env, t);
    enif_release_resource(t);
    if (!done)
        BADARG;
    return term;
}

NIF(n_close) {
    trace_t *t;
    (void)argc;
    if (!get_trace(env, argv[0], &t))
        BADARG;
    trace_close(t);
    return am.ok;
}

/* The time as events have it. */
NIF(n_now) {
    (void)argc;
    (void)argv;
    return enif_make_uint64(env, trace_now());
}

/* A process as events have it. */
NIF(n_key) {
    (void)argc;
    uint64_t who = get_who(env, argv[0]);
    if (!who)
        BADARG;
    return enif_make_uint64(env, who);
}

/* {Events, Lost, Fill in percent} */
NIF(n_info) {
    trace_t *t;
    trace_info_t i;
    (void)argc;
    if (!get_trace(env, argv[0], &t))
        BADARG;
    trace_info(t, &i);
    return enif_make_tuple3(env, enif_make_uint64(env, i.events), enif_make_uint64(env, i.lost),
                            enif_make_uint(env, i.fill));
}

static size_t namer(void *ctx, fun_t f, unsigned char *out) {
    ErlNifEnv *env = ctx;
    ErlNifBinary bin;
    ERL_NIF_TERM mfa = enif_make_tuple3(env, f.m, f.f, enif_make_int(env, f.a));
    if (!enif_term_to_binary(env, mfa, &bin))
        return 0;
    /* Without the byte that says which format it is. */
    size_t n = bin.size - 1 <= NAME_BYTES - 8 ? bin.size - 1 : 0;
    memcpy(out, bin.data + 1, n);
    enif_release_binary(&bin);
    return n;
}

/* The next bytes; none if there are none now. busy: another process reads. */
NIF(n_read) {
    trace_t *t;
    ErlNifBinary bin;
    (void)argc;
    if (!get_trace(env, argv[0], &t) || !enif_alloc_binary(PIECE, &bin))
        BADARG;
    long n = trace_read(t, bin.data, bin.size, namer, env);
    if (n < 0 || !enif_realloc_binary(&bin, (size_t)n)) {
        enif_release_binary(&bin);
        return am.busy;
    }
    enif_consume_timeslice(env, (int)(1 + 50 * (size_t)n / PIECE));
    return enif_make_binary(env, &bin);
}

/* Loading ----------------------------------------------------------------- */

static void trace_down(ErlNifEnv *env, void *obj) {
    (void)env;
    trace_free(obj);
}

static int load(ErlNifEnv *env, void **priv, ERL_NIF_TERM info) {
    (void)priv;
    (void)info;
    trace_type = enif_open_resource_type(env, NULL, "erlane_prof_trace", trace_down,
                                         ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER, NULL);
    am.ok = enif_make_atom(env, "ok");
    am.trace = enif_make_atom(env, "trace");
    am.remove = enif_make_atom(env, "remove");
    am.trace_status = enif_make_atom(env, "trace_status");
    am.match_spec_result = enif_make_atom(env, "match_spec_result");
    am.extra = enif_make_atom(env, "extra");
    am.busy = enif_make_atom(env, "busy");
    am.port = enif_make_atom(env, "[port]");
    for (int i = 0; i < KINDS; i++)
        kinds[i].tag = enif_make_atom(env, kinds[i].name);
    for (int i = 0; i < PORT_KINDS; i++)
        port_kinds[i].tag = enif_make_atom(env, port_kinds[i].name);
    return trace_type ? 0 : -1;
}

/* The module is loaded again: traces that there are go on with the new code. */
static int upgrade(ErlNifEnv *env, void **priv, void **old, ERL_NIF_TERM info) {
    (void)old;
    return load(env, priv, info);
}

static ErlNifFunc functions[] = {
    {"enabled", 3, n_enabled, 0}, {"trace", 5, n_trace, 0}, {"format", 0, n_format, 0},
    {"open", 1, n_open, 0},       {"close", 1, n_close, 0}, {"now", 0, n_now, 0},
    {"key", 1, n_key, 0},         {"info", 1, n_info, 0},   {"read", 1, n_read, 0}};

ERL_NIF_INIT(erlane_prof_tracer, functions, load, NULL, upgrade, NULL)
