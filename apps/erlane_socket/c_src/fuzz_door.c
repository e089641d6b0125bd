/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer target: the functions of erlane_nif with any terms, in any order,
 * on sockets whose other end reads, writes and closes. Besides what the
 * sanitizers see: at the end, with all owners dead and the lanes closed, no
 * resource and no descriptor may be left. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz_enif.h"

enum { SLOTS = 16, PEERS = 4, MAX_CALLS = 200, HINTS = 8 };

/* What each argument should mostly be: s socket, l lane, r relay, i small
 * number, n any number, b binary, d list of binaries, a address, v one of the
 * atoms, p pid, t ticket, w version, f descriptor, q list of sockets, with bytes or without,
 * * any term. Unlisted: s, then *. */
static const struct {
    const char *name, *args;
} hints[] = {
    {"lane_open", "i"}, {"lane_poll", "lv"}, {"lane_turn", "l"}, {"lane_sleep", "l"},
    {"lane_woke", "l"}, {"lane_close", "l"}, {"lane_stats", "i"}, {"lane_list", "i"},
    {"open", "ii*i"}, {"fdopen", "fi"}, {"bind", "sa"}, {"listen", "si"}, {"connect", "sa"},
    {"connected", "st"}, {"accept", "st"}, {"cancel", "st"}, {"send", "sdv"}, {"send_each", "qdnv"},
    {"sendfile_begin", "sf"}, {"sendfile_step", "snn"}, {"recv", "snt"},
    {"take", "swivv"}, {"need", "swnv"},
    {"fail", "swv"}, {"unrecv", "sd"}, {"active", "sv"}, {"close_now", "sv"}, {"shutdown", "si"},
    {"setsockopt", "siib"}, {"getsockopt", "siii"}, {"setopt", "sin"}, {"getopt", "si"},
    {"name", "si"}, {"own", "sp"}, {"give", "sp"}, {"relay", "ssbbnnv"}, {"relay_info", "r"},
    {"relay_stop", "ri"}, {"faults", "i"},
};

ErlNifEntry *nif_init(void);

static const ErlNifFunc *funcs;
static int funcs_n;
static ERL_NIF_TERM slots[SLOTS], ticket; /* references and the last ticket seen */
static unsigned slots_n;
static int peers[PEERS]; /* the other ends, or -1 */
static unsigned peers_n;
static int offered = -1; /* a descriptor in the arguments */

static const ErlNifFunc *find(const char *name)
{
    for (int i = 0; i < funcs_n; i++)
        if (strcmp(funcs[i].name, name) == 0)
            return &funcs[i];
    abort();
}

static ERL_NIF_TERM any_ref(unsigned k)
{
    return slots_n ? slots[k % slots_n] : fz_other(FZ_OTHER);
}

static ERL_NIF_TERM ref_of(const char *type, unsigned k)
{
    for (unsigned i = 0; i < slots_n; i++, k++)
        if (strcmp(fz_type_of(slots[k % slots_n]), type) == 0)
            return slots[k % slots_n];
    return any_ref(k);
}

/* References and tickets in an answer serve for later calls. */
static void learn(ERL_NIF_TERM t)
{
    const ERL_NIF_TERM *e;
    int n;
    if (fz_type_of(t)) {
        slots[slots_n < SLOTS ? slots_n : SLOTS - 1] = t;
        slots_n += slots_n < SLOTS;
    }
    if (!enif_get_tuple(NULL, t, &n, &e))
        return;
    for (int i = 0; i < n; i++) {
        learn(e[i]);
        if (i > 0 && e[0] == enif_make_atom(NULL, "wait"))
            ticket = e[1];
    }
}

/* The other end stays with us, this end is for fdopen. */
static int new_end(void)
{
    int fd[2];
    if (peers_n >= PEERS || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd) < 0)
        return -1;
    peers[peers_n++] = fd[0];
    return offered = fd[1];
}

static ERL_NIF_TERM address(fz_in *in)
{
    ERL_NIF_TERM e[8];
    unsigned port = (unsigned)fz_take(in, 2);
    for (unsigned i = 0; i < 8; i++)
        e[i] = fz_int(i == 0 ? 127 : i == 3 || i == 7);
    if (port & 1)
        return enif_make_tuple3(NULL, enif_make_atom(NULL, "inet"),
                                enif_make_tuple_from_array(NULL, e, 4), fz_int(port));
    e[0] = fz_int(0);
    return enif_make_tuple5(NULL, enif_make_atom(NULL, "inet6"),
                            enif_make_tuple_from_array(NULL, e, 8), fz_int(port), fz_int(0),
                            fz_int(0));
}

static ERL_NIF_TERM sockets(unsigned k, fz_in *in)
{
    ERL_NIF_TERM list = enif_make_list(NULL, 0);
    for (unsigned i = 0; i < k % 8; i++) {
        ERL_NIF_TERM s = enif_make_tuple3(NULL, enif_make_atom(NULL, "$inet"),
                                          enif_make_atom(NULL, "erlane_tcp"),
                                          ref_of("erlane_sock", k + i));
        if (k & 8)
            s = enif_make_tuple2(NULL, s, fz_bin(NULL, fz_take(in, 1) * k));
        list = enif_make_list_cell(NULL, s, list);
    }
    return list;
}

static ERL_NIF_TERM argument(char hint, fz_in *in)
{
    static const char *const atoms[] = {"true", "false", "once", "none", "more"};
    static const int64_t bounds[] = {INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, -1};
    unsigned k = (unsigned)fz_take(in, 1);
    if (hint == 'f') /* never a descriptor of the fuzzer itself */
        return k & 1 ? fz_int(new_end()) : fz_uint(100000 + fz_take(in, 6));
    if (k % HINTS == 0)
        hint = '*';
    k /= HINTS;
    switch (hint) {
    case 's':
        return ref_of("erlane_sock", k);
    case 'l':
        return ref_of("erlane_lane", k);
    case 'r':
        return ref_of("erlane_relay", k);
    case 'q':
        return sockets(k, in);
    case 'i':
        return fz_int((int)k - 1);
    case 'n':
        return k < 24 ? fz_int((int64_t)(1u << k)) : k < 30 ? fz_int(bounds[k - 24])
                                                            : fz_uint(fz_take(in, 8));
    case 'a':
        return address(in);
    case 'v':
        return k < 16 ? enif_make_atom(NULL, atoms[k % 5])
                      : fz_int(k < 24 ? (int)k - 20 : bounds[k % 6]);
    case 'w': /* counts from 0 */
        return fz_int(k % 4);
    case 'p':
        return fz_pid(k);
    case 't':
        return k < 16 || ticket == 0 ? fz_int(0) : ticket;
    case 'b':
        return fz_bin(NULL, fz_take(in, 1));
    case 'd':
        if (k < 20)
            return fz_bin(NULL, fz_take(in, 1) * (k + 1) * (k + 1));
        return enif_make_list2(NULL, fz_bin(in->p, in->n < k ? in->n : k), fz_bin(NULL, 5000));
    default:
        return fz_term(in, 4, any_ref);
    }
}

/* A descriptor that was not taken is ours to close, if that was not done. */
static void answered(const ErlNifFunc *f, ERL_NIF_TERM t)
{
    const ERL_NIF_TERM *e;
    int n;
    bool taken = strcmp(f->name, "fdopen") == 0 && enif_get_tuple(NULL, t, &n, &e) && n == 2 &&
                 fz_type_of(e[1]);
    if (offered >= 0 && !taken && fcntl(offered, F_GETFD) >= 0)
        close(offered);
    offered = -1;
    learn(t);
}

static void call(const ErlNifFunc *f, unsigned pid, fz_in *in)
{
    ERL_NIF_TERM argv[8];
    const char *args = "s*******";
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (strcmp(hints[i].name, f->name) == 0)
            args = hints[i].args;
    for (unsigned i = 0; i < f->arity; i++)
        argv[i] = argument(args[i], in);
    answered(f, fz_call(pid, f, argv));
}

static ERL_NIF_TERM call1(const char *name, ERL_NIF_TERM arg)
{
    return fz_call(0, find(name), &arg);
}

/* The other end of a socket does something. */
static void peer(fz_in *in)
{
    static char buf[70000];
    unsigned k = (unsigned)fz_take(in, 1);
    int *fd = &peers[k % PEERS];
    if (k % PEERS >= peers_n || *fd < 0)
        return;
    switch (k / PEERS % 5) {
    case 0:
        (void)!write(*fd, in->p, in->n < 64 ? in->n : 64);
        break;
    case 1:
        (void)!write(*fd, buf, fz_take(in, 2));
        break;
    case 2:
        (void)!read(*fd, buf, sizeof buf);
        break;
    case 3:
        shutdown(*fd, SHUT_WR);
        break;
    default:
        close(*fd);
        *fd = -1;
    }
}

static void turn(void)
{
    for (unsigned i = 0; i < slots_n; i++)
        if (strcmp(fz_type_of(slots[i]), "erlane_lane") == 0)
            call1("lane_turn", slots[i]);
}

static void poll_lane(ERL_NIF_TERM lane)
{
    ERL_NIF_TERM argv[2] = {lane, enif_make_atom(NULL, "true")};
    (void)fz_call(0, find("lane_poll"), argv);
}

static int open_fds(void)
{
    struct pollfd p[256];
    int n = 0;
    for (int i = 0; i < 256; i++)
        p[i] = (struct pollfd){.fd = i};
    (void)poll(p, 256, 0);
    for (int i = 0; i < 256; i++)
        n += !(p[i].revents & POLLNVAL);
    return n;
}

static void begin(void)
{
    slots_n = peers_n = 0;
    ticket = 0;
    fz_revive();
    for (int i = 1; i <= 2; i++) {
        learn(call1("lane_open", fz_int(i)));
        poll_lane(slots[slots_n - 1]);
    }
    for (int i = 0; i < 2; i++) {
        ERL_NIF_TERM argv[2] = {fz_int(new_end()), fz_int(0)};
        answered(find("fdopen"), fz_call(0, find("fdopen"), argv));
    }
}

static void end(int fds)
{
    for (unsigned i = 0; i < peers_n; i++)
        if (peers[i] >= 0)
            close(peers[i]);
    fz_revive();
    for (int i = 1; i <= 2; i++) { /* process 0 polls whatever lanes there are now */
        ERL_NIF_TERM t = call1("lane_open", fz_int(i));
        const ERL_NIF_TERM *e;
        int n;
        if (!enif_get_tuple(NULL, t, &n, &e) || n != 2)
            abort();
        poll_lane(e[1]);
        call1("lane_turn", e[1]);
        while (call1("lane_close", e[1]) != enif_make_atom(NULL, "ok"))
            ;
    }
    int left = fz_reset();
    if (left > 0 || open_fds() != fds) {
        fprintf(stderr, "left: %d resources, %d descriptors\n", left, open_fds() - fds);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fz_in in = {data, size};
    if (funcs == NULL) {
        signal(SIGPIPE, SIG_IGN); /* as the VM does */
        funcs = fz_load(nif_init, &funcs_n);
    }
    int fds = open_fds();
    begin();
    for (int i = 0; in.n > 0 && i < MAX_CALLS; i++) {
        unsigned op = (unsigned)fz_take(&in, 1);
        if (op < 160)
            call(&funcs[op % (unsigned)funcs_n], 0, &in);
        else if (op < 180)
            call(&funcs[fz_take(&in, 1) % (unsigned)funcs_n], op, &in);
        else if (op < 220)
            peer(&in);
        else if (op < 250)
            turn();
        else
            fz_kill(op);
    }
    end(fds);
    return 0;
}
