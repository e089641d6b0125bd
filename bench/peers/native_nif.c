/* SPDX-License-Identifier: Apache-2.0 */
/* A NIF as it is written by hand: terms in, a kernel of native_kernels.c, a term out. The module is
 * erlane_bench_native_c. Calls are short in the benchmark, so nothing yields. */
#include <erl_nif.h>
#include <string.h>

#include "native_kernels.h"

#define NIF(name)                                                                                  \
    static ERL_NIF_TERM nif_##name(ErlNifEnv *env, int argc, const ERL_NIF_TERM argv[])
#define BAD enif_make_badarg(env)

/* Arguments -------------------------------------------------------------- */

static bool int_at(ErlNifEnv *env, ERL_NIF_TERM t, int64_t *out)
{
    ErlNifSInt64 i;
    if (!enif_get_int64(env, t, &i))
        return false;
    *out = i;
    return true;
}

static bool word_at(ErlNifEnv *env, ERL_NIF_TERM t, uint64_t *out)
{
    ErlNifUInt64 u;
    if (!enif_get_uint64(env, t, &u))
        return false;
    *out = u;
    return true;
}

static bool num_at(ErlNifEnv *env, ERL_NIF_TERM t, double *out)
{
    ErlNifSInt64 i;
    if (enif_get_double(env, t, out))
        return true;
    if (!enif_get_int64(env, t, &i))
        return false;
    *out = (double)i;
    return true;
}

/* The usual shapes ------------------------------------------------------- */

#define INTS_1(name)                                                                               \
    NIF(name)                                                                                      \
    {                                                                                              \
        int64_t a;                                                                                 \
        (void)argc;                                                                                \
        return int_at(env, argv[0], &a) ? enif_make_int64(env, k_##name(a)) : BAD;                 \
    }
#define INTS_2(name)                                                                               \
    NIF(name)                                                                                      \
    {                                                                                              \
        int64_t a, b;                                                                              \
        (void)argc;                                                                                \
        if (!int_at(env, argv[0], &a) || !int_at(env, argv[1], &b))                                \
            return BAD;                                                                            \
        return enif_make_int64(env, k_##name(a, b));                                               \
    }
#define INTS_3(name)                                                                               \
    NIF(name)                                                                                      \
    {                                                                                              \
        int64_t a, b, c;                                                                           \
        (void)argc;                                                                                \
        if (!int_at(env, argv[0], &a) || !int_at(env, argv[1], &b) || !int_at(env, argv[2], &c))   \
            return BAD;                                                                            \
        return enif_make_int64(env, k_##name(a, b, c));                                            \
    }
#define WORDS_2(name)                                                                              \
    NIF(name)                                                                                      \
    {                                                                                              \
        uint64_t a, b;                                                                             \
        (void)argc;                                                                                \
        if (!word_at(env, argv[0], &a) || !word_at(env, argv[1], &b))                              \
            return BAD;                                                                            \
        return enif_make_uint64(env, k_##name(a, b));                                              \
    }
#define BYTES(name, make)                                                                          \
    NIF(name)                                                                                      \
    {                                                                                              \
        ErlNifBinary in;                                                                           \
        (void)argc;                                                                                \
        return enif_inspect_binary(env, argv[0], &in) ? make(env, k_##name(in.data, in.size))      \
                                                      : BAD;                                       \
    }
#define FLOAT_OF_INT(name)                                                                         \
    NIF(name)                                                                                      \
    {                                                                                              \
        int64_t n;                                                                                 \
        (void)argc;                                                                                \
        return int_at(env, argv[0], &n) ? enif_make_double(env, k_##name(n)) : BAD;                \
    }
#define FLOAT_OF_INT_FLOAT(name)                                                                   \
    NIF(name)                                                                                      \
    {                                                                                              \
        int64_t n;                                                                                 \
        double x;                                                                                  \
        (void)argc;                                                                                \
        if (!int_at(env, argv[0], &n) || !num_at(env, argv[1], &x))                                \
            return BAD;                                                                            \
        return enif_make_double(env, k_##name(n, x));                                              \
    }

WORDS_2(lcg)
WORDS_2(xorshift64star)
INTS_1(collatz_longest)
INTS_2(gcd)
INTS_3(modpow)
INTS_1(primes)
INTS_1(fib)
INTS_3(tak)
INTS_2(ackermann)
BYTES(fnv1a32, enif_make_uint64)
BYTES(fnv1a64, enif_make_uint64)
BYTES(crc32c, enif_make_uint64)
BYTES(adler32, enif_make_uint64)
BYTES(byte_sum, enif_make_uint64)
BYTES(varints, enif_make_int64)
BYTES(json_scan, enif_make_int64)
INTS_2(mandelbrot)
FLOAT_OF_INT(nbody)
FLOAT_OF_INT(spectral_sum)
FLOAT_OF_INT_FLOAT(kepler)
FLOAT_OF_INT_FLOAT(logistic)

/* The others ------------------------------------------------------------- */

NIF(xxh64)
{
    ErlNifBinary in;
    uint64_t seed;
    (void)argc;
    if (!enif_inspect_binary(env, argv[0], &in) || !word_at(env, argv[1], &seed))
        return BAD;
    return enif_make_uint64(env, k_xxh64(in.data, in.size, seed));
}

NIF(siphash24)
{
    ErlNifBinary in;
    uint64_t k0, k1;
    (void)argc;
    if (!word_at(env, argv[0], &k0) || !word_at(env, argv[1], &k1) ||
        !enif_inspect_binary(env, argv[2], &in))
        return BAD;
    return enif_make_uint64(env, k_siphash24(k0, k1, in.data, in.size));
}

NIF(utf8_valid)
{
    ErlNifBinary in;
    (void)argc;
    if (!enif_inspect_binary(env, argv[0], &in))
        return BAD;
    return enif_make_atom(env, k_utf8_valid(in.data, in.size) ? "true" : "false");
}

NIF(hex_encode)
{
    ErlNifBinary in;
    ERL_NIF_TERM out;
    (void)argc;
    if (!enif_inspect_binary(env, argv[0], &in))
        return BAD;
    k_hex_encode(in.data, in.size, enif_make_new_binary(env, 2 * in.size, &out));
    return out;
}

NIF(base64_encode)
{
    ErlNifBinary in;
    ERL_NIF_TERM out;
    (void)argc;
    if (!enif_inspect_binary(env, argv[0], &in))
        return BAD;
    k_base64_encode(in.data, in.size, enif_make_new_binary(env, (in.size + 2) / 3 * 4, &out));
    return out;
}

NIF(xor_mask)
{
    ErlNifBinary in;
    uint64_t mask;
    ERL_NIF_TERM out;
    (void)argc;
    if (!enif_inspect_binary(env, argv[0], &in) || !word_at(env, argv[1], &mask))
        return BAD;
    k_xor_mask(in.data, in.size, (uint32_t)mask, enif_make_new_binary(env, in.size, &out));
    return out;
}

NIF(spectral_norm)
{
    int64_t n;
    (void)argc;
    if (!int_at(env, argv[0], &n) || n < 1 || n > 10000)
        return BAD;
    double *work = enif_alloc(3 * (size_t)n * sizeof(double));
    if (work == NULL)
        return BAD;
    ERL_NIF_TERM out = enif_make_double(env, k_spectral_norm(n, work));
    enif_free(work);
    return out;
}

static bool matrix(ErlNifEnv *env, ERL_NIF_TERM t, int size, double *out)
{
    const ERL_NIF_TERM *cells;
    int arity;
    if (!enif_get_tuple(env, t, &arity, &cells) || arity != size)
        return false;
    for (int i = 0; i < size; i++)
        if (!num_at(env, cells[i], &out[i]))
            return false;
    return true;
}

NIF(matrix_product)
{
    int64_t n;
    (void)argc;
    if (!int_at(env, argv[2], &n) || n < 1 || n > 1000)
        return BAD;
    int size = (int)(n * n);
    ERL_NIF_TERM out = enif_make_list(env, 0);
    double *a = enif_alloc(3 * (size_t)size * sizeof(double));
    if (a == NULL)
        return BAD;
    double *b = a + size, *c = b + size;
    bool ok = matrix(env, argv[0], size, a) && matrix(env, argv[1], size, b);
    if (ok) {
        k_matrix_product(a, b, n, c);
        for (int i = size - 1; i >= 0; i--)
            out = enif_make_list_cell(env, enif_make_double(env, c[i]), out);
    }
    enif_free(a);
    return ok ? out : BAD;
}

static bool ints_of(ErlNifEnv *env, ERL_NIF_TERM list, int64_t *out)
{
    ERL_NIF_TERM head;
    while (enif_get_list_cell(env, list, &head, &list))
        if (!int_at(env, head, out++))
            return false;
    return true;
}

NIF(levenshtein)
{
    unsigned na, nb;
    (void)argc;
    if (!enif_get_list_length(env, argv[0], &na) || !enif_get_list_length(env, argv[1], &nb))
        return BAD;
    int64_t *a = enif_alloc(((size_t)na + 2 * (size_t)nb + 1) * sizeof(int64_t));
    if (a == NULL)
        return BAD;
    int64_t *b = a + na, *row = b + nb, distance = 0;
    bool ok = ints_of(env, argv[0], a) && ints_of(env, argv[1], b);
    if (ok)
        distance = k_levenshtein(a, na, b, nb, row);
    enif_free(a);
    return ok ? enif_make_int64(env, distance) : BAD;
}

static ErlNifFunc functions[] = {
    {"lcg", 2, nif_lcg, 0},
    {"xorshift64star", 2, nif_xorshift64star, 0},
    {"collatz_longest", 1, nif_collatz_longest, 0},
    {"gcd", 2, nif_gcd, 0},
    {"modpow", 3, nif_modpow, 0},
    {"primes", 1, nif_primes, 0},
    {"fib", 1, nif_fib, 0},
    {"tak", 3, nif_tak, 0},
    {"ackermann", 2, nif_ackermann, 0},
    {"fnv1a32", 1, nif_fnv1a32, 0},
    {"fnv1a64", 1, nif_fnv1a64, 0},
    {"xxh64", 2, nif_xxh64, 0},
    {"siphash24", 3, nif_siphash24, 0},
    {"crc32c", 1, nif_crc32c, 0},
    {"adler32", 1, nif_adler32, 0},
    {"byte_sum", 1, nif_byte_sum, 0},
    {"varints", 1, nif_varints, 0},
    {"utf8_valid", 1, nif_utf8_valid, 0},
    {"json_scan", 1, nif_json_scan, 0},
    {"hex_encode", 1, nif_hex_encode, 0},
    {"base64_encode", 1, nif_base64_encode, 0},
    {"xor_mask", 2, nif_xor_mask, 0},
    {"mandelbrot", 2, nif_mandelbrot, 0},
    {"nbody", 1, nif_nbody, 0},
    {"kepler", 2, nif_kepler, 0},
    {"spectral_norm", 1, nif_spectral_norm, 0},
    {"spectral_sum", 1, nif_spectral_sum, 0},
    {"logistic", 2, nif_logistic, 0},
    {"matrix_product", 3, nif_matrix_product, 0},
    {"levenshtein", 2, nif_levenshtein, 0}};

ERL_NIF_INIT(erlane_bench_native_c, functions, NULL, NULL, NULL, NULL)
