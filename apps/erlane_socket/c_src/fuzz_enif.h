/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the NIF API that erlane_nif uses, without a VM, for the fuzz
 * targets: terms live until fz_reset, which is the garbage collector, too. */
#ifndef FUZZ_ENIF_H
#define FUZZ_ENIF_H

#include <erl_nif.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fz_kind { FZ_INT, FZ_UINT, FZ_BIG, FZ_OTHER, FZ_ATOM, FZ_BIN, FZ_NIL, FZ_CONS, FZ_TUPLE,
               FZ_RES, FZ_PID };
enum { FZ_PIDS = 4 };

/* Input, taken from the front; zeros when it is used up. */
typedef struct {
    const uint8_t *p;
    size_t n;
} fz_in;

uint64_t fz_take(fz_in *in, int bytes);

ERL_NIF_TERM fz_int(int64_t i);
ERL_NIF_TERM fz_uint(uint64_t u);
ERL_NIF_TERM fz_other(enum fz_kind kind);
ERL_NIF_TERM fz_bin(const void *p, size_t n); /* p NULL: zeros */
ERL_NIF_TERM fz_pid(unsigned i);
enum fz_kind fz_kind_of(ERL_NIF_TERM t);
ERL_NIF_TERM fz_res(void *obj);
void *fz_obj(ERL_NIF_TERM t); /* NULL if t is no reference */
unsigned fz_pid_of(ERL_NIF_TERM t);
void fz_free_terms(void);
/* Any term at all. ref(arg, k) gives references to what there is. */
ERL_NIF_TERM fz_term(fz_in *in, int depth, ERL_NIF_TERM (*ref)(unsigned));

/* fuzz_vm.c: what the VM does around a call. */

/* Loads the library; calls one of its functions as the process pid. */
const ErlNifFunc *fz_load(ErlNifEntry *(*init)(void), int *count);
ERL_NIF_TERM fz_call(unsigned pid, const ErlNifFunc *f, const ERL_NIF_TERM *argv);
/* The end of a process, with the callbacks of who monitors it; all live again. */
void fz_kill(unsigned pid);
void fz_revive(void);
/* The resource's type by name, or NULL if t is no reference to one. */
const char *fz_type_of(ERL_NIF_TERM t);
/* Frees all terms and drops their references; how many resources live on. */
int fz_reset(void);
#endif
