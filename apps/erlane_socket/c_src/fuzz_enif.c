/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_enif.h"

/* The environment tells us nothing: there is one heap. */
#define ENV __attribute__((unused)) ErlNifEnv *env

/* Each term and each binary is an allocation of its own, so that the sanitizer
 * sees where it ends. Atoms and pids are kept: they are compared as words. */
typedef struct term {
    struct term *next;
    enum fz_kind kind;
    int64_t i;
    size_t n;
    unsigned char *data;
    ERL_NIF_TERM *elems; /* of a tuple; of a cell, two */
    void *obj;
    char name[32];
} term_t;

static term_t *terms, *atoms, *pids[FZ_PIDS];

static term_t *T(ERL_NIF_TERM t) { return (term_t *)t; }

static term_t *fresh(enum fz_kind kind)
{
    term_t *t = calloc(1, sizeof *t);
    t->kind = kind;
    t->next = terms;
    terms = t;
    return t;
}

uint64_t fz_take(fz_in *in, int bytes)
{
    uint64_t v = 0;
    for (; bytes > 0; bytes--) {
        v = v << 8 | (in->n ? *in->p : 0);
        if (in->n)
            in->p++, in->n--;
    }
    return v;
}

/* Making ------------------------------------------------------------------ */

ERL_NIF_TERM fz_int(int64_t i)
{
    term_t *t = fresh(FZ_INT);
    t->i = i;
    return (ERL_NIF_TERM)t;
}

ERL_NIF_TERM fz_uint(uint64_t u)
{
    term_t *t = fresh(u > INT64_MAX ? FZ_UINT : FZ_INT);
    t->i = (int64_t)u;
    return (ERL_NIF_TERM)t;
}

ERL_NIF_TERM fz_other(enum fz_kind kind) { return (ERL_NIF_TERM)fresh(kind); }

ERL_NIF_TERM fz_bin(const void *p, size_t n)
{
    term_t *t = fresh(FZ_BIN);
    t->data = calloc(1, n ? n : 1);
    t->n = n;
    if (p)
        memcpy(t->data, p, n);
    return (ERL_NIF_TERM)t;
}

ERL_NIF_TERM fz_pid(unsigned i)
{
    i %= FZ_PIDS;
    if (pids[i] == NULL) {
        pids[i] = calloc(1, sizeof *pids[i]);
        pids[i]->kind = FZ_PID;
        pids[i]->i = i;
    }
    return (ERL_NIF_TERM)pids[i];
}

static ERL_NIF_TERM block(enum fz_kind kind, const ERL_NIF_TERM *e, size_t n)
{
    term_t *t = fresh(kind);
    t->n = n;
    t->elems = calloc(n ? n : 1, sizeof *e);
    for (size_t i = 0; i < n; i++) {
        if (e[i] == 0)
            abort(); /* an uninitialised element */
        t->elems[i] = e[i];
    }
    return (ERL_NIF_TERM)t;
}

enum fz_kind fz_kind_of(ERL_NIF_TERM t) { return T(t)->kind; }

ERL_NIF_TERM fz_res(void *obj)
{
    term_t *t = fresh(FZ_RES);
    t->obj = obj;
    enif_keep_resource(obj);
    return (ERL_NIF_TERM)t;
}

void *fz_obj(ERL_NIF_TERM t) { return T(t)->obj; }

unsigned fz_pid_of(ERL_NIF_TERM t) { return (unsigned)T(t)->i; }

void fz_free_terms(void)
{
    for (term_t *t; (t = terms);) {
        terms = t->next;
        if (t->kind == FZ_RES)
            enif_release_resource(t->obj);
        free(t->data);
        free(t->elems);
        free(t);
    }
}

ERL_NIF_TERM fz_term(fz_in *in, int depth, ERL_NIF_TERM (*ref)(unsigned))
{
    static const char *const names[] = {"ok", "true", "false", "once", "none", "undefined",
                                        "local", "inet", "inet6", "ready", "closed", "x"};
    ERL_NIF_TERM e[12];
    unsigned kind = (unsigned)fz_take(in, 1) % 16, n;
    if (depth == 0 && (kind == 7 || kind == 8 || kind == 9))
        kind = 0;
    switch (kind) {
    case 0:
        return fz_int((int8_t)fz_take(in, 1));
    case 1:
        return fz_int((int32_t)fz_take(in, 4));
    case 2:
        return fz_uint(fz_take(in, 8));
    case 3:
        return fz_other(fz_take(in, 1) & 1 ? FZ_BIG : FZ_OTHER);
    case 4:
        return enif_make_atom(NULL, names[fz_take(in, 1) % 12]);
    case 5:
        n = (unsigned)fz_take(in, 1);
        n = n > in->n ? (unsigned)in->n : n;
        in->p += n, in->n -= n;
        return fz_bin(in->p - n, n);
    case 6:
        return fz_bin(NULL, fz_take(in, 2) * 16);
    case 7:
    case 8:
    case 9:
        n = (unsigned)fz_take(in, 1) % 10;
        for (unsigned i = 0; i < n; i++)
            e[i] = fz_term(in, depth - 1, ref);
        if (kind == 9)
            return block(FZ_TUPLE, e, n);
        e[11] = kind == 7 ? enif_make_list(NULL, 0) : fz_term(in, 0, ref);
        while (n > 0)
            e[11] = enif_make_list_cell(NULL, e[--n], e[11]);
        return e[11];
    case 10:
        return enif_make_list(NULL, 0);
    case 11:
        return fz_pid((unsigned)fz_take(in, 1));
    default:
        return ref((unsigned)fz_take(in, 1));
    }
}

ERL_NIF_TERM enif_make_atom(ENV, const char *name)
{
    for (term_t *a = atoms; a; a = a->next)
        if (strcmp(a->name, name) == 0)
            return (ERL_NIF_TERM)a;
    term_t *a = calloc(1, sizeof *a);
    a->kind = FZ_ATOM;
    snprintf(a->name, sizeof a->name, "%s", name);
    a->next = atoms;
    atoms = a;
    return (ERL_NIF_TERM)a;
}

ERL_NIF_TERM enif_make_int(ENV, int i) { return fz_int(i); }
ERL_NIF_TERM enif_make_uint(ENV, unsigned i) { return fz_int(i); }
ERL_NIF_TERM enif_make_int64(ENV, ErlNifSInt64 i) { return fz_int(i); }
ERL_NIF_TERM enif_make_uint64(ENV, ErlNifUInt64 i) { return fz_uint(i); }
ERL_NIF_TERM enif_make_badarg(ENV) { return fz_other(FZ_OTHER); }
ERL_NIF_TERM enif_make_copy(ENV, ERL_NIF_TERM t) { return t; }
ERL_NIF_TERM enif_make_list_cell(ENV, ERL_NIF_TERM h, ERL_NIF_TERM t)
{
    return block(FZ_CONS, (ERL_NIF_TERM[]){h, t}, 2);
}
ERL_NIF_TERM enif_make_tuple_from_array(ENV, const ERL_NIF_TERM *e, unsigned n)
{
    return block(FZ_TUPLE, e, n);
}

ERL_NIF_TERM enif_make_string_len(ENV, const char *s, size_t n, ErlNifCharEncoding c)
{
    (void)c;
    return fz_bin(s, n);
}

int enif_make_map_from_arrays(ENV, ERL_NIF_TERM *k, ERL_NIF_TERM *v, size_t n, ERL_NIF_TERM *map)
{
    (void)k;
    *map = block(FZ_TUPLE, v, n);
    return 1;
}

static ERL_NIF_TERM varargs(enum fz_kind kind, unsigned n, va_list ap)
{
    ERL_NIF_TERM e[16], list;
    for (unsigned i = 0; i < n; i++)
        e[i] = va_arg(ap, ERL_NIF_TERM);
    if (kind == FZ_TUPLE)
        return block(FZ_TUPLE, e, n);
    for (list = fz_other(FZ_NIL); n > 0; n--)
        list = enif_make_list_cell(NULL, e[n - 1], list);
    return list;
}

#define VARARGS(name, kind)                                                                        \
    ERL_NIF_TERM name(ENV, unsigned n, ...)                                                        \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, n);                                                                           \
        ERL_NIF_TERM t = varargs(kind, n, ap);                                                     \
        va_end(ap);                                                                                \
        return t;                                                                                  \
    }
VARARGS(enif_make_tuple, FZ_TUPLE)
VARARGS(enif_make_list, FZ_NIL)

ERL_NIF_TERM enif_make_list_from_array(ErlNifEnv *env, const ERL_NIF_TERM *e, unsigned n)
{
    ERL_NIF_TERM t = enif_make_list(env, 0);
    while (n > 0)
        t = enif_make_list_cell(env, e[--n], t);
    return t;
}

/* Reading ----------------------------------------------------------------- */

#define GET(name, type, low, high)                                                                 \
    int name(ENV, ERL_NIF_TERM t, type *v)                                                         \
    {                                                                                              \
        if (T(t)->kind != FZ_INT || T(t)->i < (low) || T(t)->i > (high))                           \
            return 0;                                                                              \
        *v = (type)T(t)->i;                                                                        \
        return 1;                                                                                  \
    }
GET(enif_get_int, int, INT32_MIN, INT32_MAX)
GET(enif_get_uint, unsigned, 0, UINT32_MAX)
GET(enif_get_int64, ErlNifSInt64, INT64_MIN, INT64_MAX)

int enif_get_uint64(ENV, ERL_NIF_TERM t, ErlNifUInt64 *v)
{
    *v = (ErlNifUInt64)T(t)->i;
    return T(t)->kind == FZ_UINT || (T(t)->kind == FZ_INT && T(t)->i >= 0);
}

int enif_get_tuple(ENV, ERL_NIF_TERM t, int *n, const ERL_NIF_TERM **e)
{
    *n = (int)T(t)->n;
    *e = T(t)->elems;
    return T(t)->kind == FZ_TUPLE;
}

int enif_get_list_cell(ENV, ERL_NIF_TERM t, ERL_NIF_TERM *h, ERL_NIF_TERM *tail)
{
    if (T(t)->kind != FZ_CONS)
        return 0;
    *h = T(t)->elems[0];
    *tail = T(t)->elems[1];
    return 1;
}

int enif_is_empty_list(ENV, ERL_NIF_TERM t) { return T(t)->kind == FZ_NIL; }

int enif_is_list(ENV, ERL_NIF_TERM t) { return T(t)->kind == FZ_NIL || T(t)->kind == FZ_CONS; }

/* Binaries ---------------------------------------------------------------- */

int enif_alloc_binary(size_t n, ErlNifBinary *b)
{
    memset(b, 0, sizeof *b);
    b->data = n > 1u << 30 ? NULL : malloc(n ? n : 1);
    b->size = n;
    return b->data != NULL;
}

int enif_realloc_binary(ErlNifBinary *b, size_t n)
{
    unsigned char *d = n > 1u << 30 ? NULL : realloc(b->data, n ? n : 1);
    if (d == NULL)
        return 0;
    b->data = d;
    b->size = n;
    return 1;
}

void enif_release_binary(ErlNifBinary *b) { free(b->data); }

ERL_NIF_TERM enif_make_binary(ENV, ErlNifBinary *b)
{
    term_t *t = fresh(FZ_BIN);
    t->data = b->data;
    t->n = b->size;
    return (ERL_NIF_TERM)t;
}

unsigned char *enif_make_new_binary(ENV, size_t n, ERL_NIF_TERM *t)
{
    *t = fz_bin(NULL, n);
    return T(*t)->data;
}

ERL_NIF_TERM enif_make_sub_binary(ENV, ERL_NIF_TERM t, size_t at, size_t n)
{
    if (T(t)->kind != FZ_BIN || at + n > T(t)->n)
        abort();
    return fz_bin(T(t)->data + at, n);
}

int enif_inspect_binary(ENV, ERL_NIF_TERM t, ErlNifBinary *b)
{
    if (T(t)->kind != FZ_BIN)
        return 0;
    b->data = T(t)->data;
    b->size = T(t)->n;
    return 1;
}

static void append(term_t *out, const unsigned char *p, size_t n)
{
    if (n == 0)
        return;
    out->data = realloc(out->data, out->n + n);
    memcpy(out->data + out->n, p, n);
    out->n += n;
}

/* Appends an iolist (a byte counts where it is an element) to out. */
static bool flatten(ERL_NIF_TERM t, bool element, term_t *out)
{
    unsigned char byte = (unsigned char)T(t)->i;
    for (; T(t)->kind == FZ_CONS; t = T(t)->elems[1], element = false)
        if (!flatten(T(t)->elems[0], true, out))
            return false;
    if (T(t)->kind == FZ_INT && element && T(t)->i == byte)
        append(out, &byte, 1);
    else if (T(t)->kind == FZ_BIN)
        append(out, T(t)->data, T(t)->n);
    else
        return T(t)->kind == FZ_NIL;
    return true;
}

int enif_inspect_iolist_as_binary(ENV, ERL_NIF_TERM t, ErlNifBinary *b)
{
    term_t *out = fresh(FZ_BIN);
    b->ref_bin = NULL;
    bool good = flatten(t, false, out);
    append(out, (const unsigned char *)"", 1); /* never NULL */
    b->data = out->data;
    b->size = out->n - 1;
    return good;
}

int enif_inspect_iovec(ENV, size_t max, ERL_NIF_TERM list, ERL_NIF_TERM *tail, ErlNifIOVec **v)
{
    ErlNifBinary b;
    ERL_NIF_TERM head;
    term_t *iov = fresh(FZ_BIN);
    iov->data = calloc(max, sizeof(SysIOVec));
    memset(*v, 0, sizeof **v);
    (*v)->iov = (SysIOVec *)(void *)iov->data;
    while (max-- > 0 && enif_get_list_cell(env, list, &head, &list)) {
        if (!enif_inspect_binary(env, head, &b))
            return 0;
        (*v)->iov[(*v)->iovcnt++] = (SysIOVec){(char *)b.data, b.size};
        (*v)->size += b.size;
    }
    *tail = list;
    return 1;
}
