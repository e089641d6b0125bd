/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of `erlane bench native' as somebody would write them in C. No terms here. */
#ifndef NATIVE_KERNELS_H
#define NATIVE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t k_lcg(uint64_t n, uint64_t x);
uint64_t k_xorshift64star(uint64_t n, uint64_t x);
int64_t k_collatz_longest(int64_t max);
int64_t k_gcd(int64_t a, int64_t b);
int64_t k_modpow(int64_t base, int64_t exponent, int64_t m);
int64_t k_primes(int64_t n);
int64_t k_fib(int64_t n);
int64_t k_tak(int64_t x, int64_t y, int64_t z);
int64_t k_ackermann(int64_t m, int64_t n);

uint32_t k_fnv1a32(const uint8_t *p, size_t n);
uint64_t k_fnv1a64(const uint8_t *p, size_t n);
uint64_t k_xxh64(const uint8_t *p, size_t n, uint64_t seed);
uint64_t k_siphash24(uint64_t k0, uint64_t k1, const uint8_t *p, size_t n);
uint32_t k_crc32c(const uint8_t *p, size_t n);
uint32_t k_adler32(const uint8_t *p, size_t n);
uint64_t k_byte_sum(const uint8_t *p, size_t n);

int64_t k_varints(const uint8_t *p, size_t n);
bool k_utf8_valid(const uint8_t *p, size_t n);
int64_t k_json_scan(const uint8_t *p, size_t n);
/* The caller has made room: 2 n, 4 ((n + 2) / 3) and n bytes. */
void k_hex_encode(const uint8_t *p, size_t n, uint8_t *out);
void k_base64_encode(const uint8_t *p, size_t n, uint8_t *out);
void k_xor_mask(const uint8_t *p, size_t n, uint32_t mask, uint8_t *out);

int64_t k_mandelbrot(int64_t size, int64_t max);
double k_nbody(int64_t steps);
double k_kepler(int64_t steps, double dt);
/* work has room for 3 n numbers. */
double k_spectral_norm(int64_t n, double *work);
double k_spectral_sum(int64_t n);
double k_logistic(int64_t n, double x);

void k_matrix_product(const double *a, const double *b, int64_t n, double *out);
/* row has room for nb + 1 numbers. */
int64_t k_levenshtein(const int64_t *a, size_t na, const int64_t *b, size_t nb, int64_t *row);

#endif
