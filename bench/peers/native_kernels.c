/* SPDX-License-Identifier: Apache-2.0 */
/* See native_kernels.h. Each does what the Erlang function of its name does, for the arguments of
 * the benchmark: no check for more than a word holds. */
#include <math.h>
#include <string.h>

#include "native_kernels.h"

/* Integers --------------------------------------------------------------- */

uint64_t k_lcg(uint64_t n, uint64_t x)
{
    while (n--)
        x = x * 6364136223846793005u + 1442695040888963407u;
    return x;
}

uint64_t k_xorshift64star(uint64_t n, uint64_t x)
{
    while (n--) {
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
    }
    return x * 0x2545F4914F6CDD1Du;
}

int64_t k_collatz_longest(int64_t max)
{
    int64_t best = 1, length = 0;
    for (int64_t i = 1; i <= max; i++) {
        int64_t steps = 0;
        for (int64_t n = i; n != 1; steps++)
            n = n & 1 ? 3 * n + 1 : n >> 1;
        if (steps > length) {
            best = i;
            length = steps;
        }
    }
    return best;
}

int64_t k_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a < 0 ? -a : a;
}

int64_t k_modpow(int64_t base, int64_t exponent, int64_t m)
{
    __int128 b = base % m, acc = 1 % m;
    for (; exponent != 0; exponent >>= 1) {
        if (exponent & 1)
            acc = acc * b % m;
        b = b * b % m;
    }
    return (int64_t)acc;
}

int64_t k_primes(int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 2; i <= n; i++) {
        int64_t d = 2;
        while (d * d <= i && i % d != 0)
            d++;
        count += d * d > i;
    }
    return count;
}

int64_t k_fib(int64_t n)
{
    return n < 2 ? n : k_fib(n - 1) + k_fib(n - 2);
}

int64_t k_tak(int64_t x, int64_t y, int64_t z)
{
    return y >= x ? z : k_tak(k_tak(x - 1, y, z), k_tak(y - 1, z, x), k_tak(z - 1, x, y));
}

int64_t k_ackermann(int64_t m, int64_t n)
{
    if (m == 0)
        return n + 1;
    return n == 0 ? k_ackermann(m - 1, 1) : k_ackermann(m - 1, k_ackermann(m, n - 1));
}

/* Hashes and checksums --------------------------------------------------- */

uint32_t k_fnv1a32(const uint8_t *p, size_t n)
{
    uint32_t h = 0x811C9DC5;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x01000193;
    return h;
}

uint64_t k_fnv1a64(const uint8_t *p, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001B3u;
    return h;
}

static uint64_t rol(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t le64(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x; /* little-endian machines only, as the whole benchmark */
}

static uint32_t le32(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, 4);
    return x;
}

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static uint64_t xxh_round(uint64_t acc, uint64_t lane)
{
    return rol(acc + lane * P2, 31) * P1;
}

static uint64_t xxh_merge(uint64_t acc, uint64_t lane)
{
    return (acc ^ xxh_round(0, lane)) * P1 + P4;
}

uint64_t k_xxh64(const uint8_t *p, size_t n, uint64_t seed)
{
    const uint8_t *end = p + n;
    uint64_t h = seed + P5;
    if (n >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; end - p >= 32; p += 32) {
            a = xxh_round(a, le64(p));
            b = xxh_round(b, le64(p + 8));
            c = xxh_round(c, le64(p + 16));
            d = xxh_round(d, le64(p + 24));
        }
        h = rol(a, 1) + rol(b, 7) + rol(c, 12) + rol(d, 18);
        h = xxh_merge(xxh_merge(xxh_merge(xxh_merge(h, a), b), c), d);
    }
    h += n;
    for (; end - p >= 8; p += 8)
        h = rol(h ^ xxh_round(0, le64(p)), 27) * P1 + P4;
    if (end - p >= 4) {
        h = rol(h ^ (le32(p) * P1), 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++)
        h = rol(h ^ (*p * P5), 11) * P1;
    h = (h ^ (h >> 33)) * P2;
    h = (h ^ (h >> 29)) * P3;
    return h ^ (h >> 32);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rol(v[1], 13) ^ v[0];
    v[3] = rol(v[3], 16) ^ v[2];
    v[0] = rol(v[0], 32) + v[3];
    v[2] += v[1];
    v[1] = rol(v[1], 17) ^ v[2];
    v[3] = rol(v[3], 21) ^ v[0];
    v[2] = rol(v[2], 32);
}

uint64_t k_siphash24(uint64_t k0, uint64_t k1, const uint8_t *p, size_t n)
{
    uint64_t v[4] = {k0 ^ 0x736F6D6570736575u, k1 ^ 0x646F72616E646F6Du, k0 ^ 0x6C7967656E657261u,
                     k1 ^ 0x7465646279746573u};
    uint64_t last = (uint64_t)n << 56;
    const uint8_t *end = p + (n & ~(size_t)7);
    for (; p < end; p += 8) {
        uint64_t m = le64(p);
        v[3] ^= m;
        sip_round(v);
        sip_round(v);
        v[0] ^= m;
    }
    for (size_t i = 0; i < (n & 7); i++)
        last |= (uint64_t)p[i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 255;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint32_t k_crc32c(const uint8_t *p, size_t n)
{
    uint32_t c = 0xFFFFFFFF;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ (0x82F63B78 & -(c & 1));
    }
    return ~c;
}

uint32_t k_adler32(const uint8_t *p, size_t n)
{
    uint32_t a = 1, b = 0;
    for (size_t i = 0; i < n; i++) {
        a = (a + p[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

uint64_t k_byte_sum(const uint8_t *p, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p[i];
    return sum;
}

/* Bytes ------------------------------------------------------------------ */

int64_t k_varints(const uint8_t *p, size_t n)
{
    uint64_t value = 0, sum = 0;
    int shift = 0;
    for (size_t i = 0; i < n; i++) {
        value |= (uint64_t)(p[i] & 127) << shift;
        if (p[i] & 128) {
            shift += 7;
        } else {
            sum += value;
            value = 0;
            shift = 0;
        }
    }
    return shift == 0 ? (int64_t)sum : -1 - shift / 7;
}

static bool follows(uint8_t c)
{
    return (c & 0xC0) == 0x80;
}

bool k_utf8_valid(const uint8_t *p, size_t n)
{
    const uint8_t *end = p + n;
    while (p < end) {
        if (*p < 0x80) {
            p++;
        } else if (*p >= 0xC2 && *p < 0xE0 && end - p > 1 && follows(p[1])) {
            p += 2;
        } else if ((*p & 0xF0) == 0xE0 && end - p > 2 && follows(p[1]) && follows(p[2]) &&
                   (*p != 0xE0 || p[1] >= 0xA0) && (*p != 0xED || p[1] < 0xA0)) {
            p += 3;
        } else if (*p >= 0xF0 && *p < 0xF5 && end - p > 3 && follows(p[1]) && follows(p[2]) &&
                   follows(p[3]) && (*p != 0xF0 || p[1] >= 0x90) && (*p != 0xF4 || p[1] < 0x90)) {
            p += 4;
        } else {
            return false;
        }
    }
    return true;
}

static bool in_scalar(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '.' || c == '+' || c == '-' ||
           c == 'E';
}

int64_t k_json_scan(const uint8_t *p, size_t n)
{
    const uint8_t *end = p + n;
    uint64_t open = 1;
    int64_t count = 0;
    while (p < end) {
        uint8_t c = *p++;
        switch (c) {
        case ' ': case '\n': case '\t': case '\r': case ',': case ':':
            break;
        case '{': case '[':
            open = open * 2 + (c == '{');
            count++;
            break;
        case '}': case ']':
            if ((open & 1) != (c == '}') || open == 1)
                return -1;
            open >>= 1;
            break;
        case '"':
            count++;
            while (p < end && *p != '"') {
                if (*p < ' ')
                    return -1;
                p += *p == '\\' ? 2 : 1;
            }
            if (p++ >= end)
                return -1;
            break;
        default:
            if (c != '-' && !(c >= '0' && c <= '9') && c != 't' && c != 'f' && c != 'n')
                return -1;
            count++;
            while (p < end && in_scalar(*p))
                p++;
        }
    }
    return open == 1 ? count : -1;
}

void k_hex_encode(const uint8_t *p, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = (uint8_t)"0123456789abcdef"[p[i] >> 4];
        out[2 * i + 1] = (uint8_t)"0123456789abcdef"[p[i] & 15];
    }
}

void k_base64_encode(const uint8_t *p, size_t n, uint8_t *out)
{
    static const char d[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; n >= 3; n -= 3, p += 3) {
        uint32_t w = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
        *out++ = (uint8_t)d[w >> 18];
        *out++ = (uint8_t)d[w >> 12 & 63];
        *out++ = (uint8_t)d[w >> 6 & 63];
        *out++ = (uint8_t)d[w & 63];
    }
    if (n > 0) {
        uint32_t w = (uint32_t)p[0] << 16 | (n == 2 ? (uint32_t)p[1] << 8 : 0);
        *out++ = (uint8_t)d[w >> 18];
        *out++ = (uint8_t)d[w >> 12 & 63];
        *out++ = n == 2 ? (uint8_t)d[w >> 6 & 63] : '=';
        *out++ = '=';
    }
}

void k_xor_mask(const uint8_t *p, size_t n, uint32_t mask, uint8_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = p[i] ^ (uint8_t)(mask >> (24 - 8 * (i & 3)));
}

/* Floats ----------------------------------------------------------------- */

static int64_t mandel(double cr, double ci, int64_t left)
{
    double zr = 0, zi = 0;
    for (; left > 0; left--) {
        double rr = zr * zr, ii = zi * zi;
        if (rr + ii > 4)
            break;
        zi = 2 * zr * zi + ci;
        zr = rr - ii + cr;
    }
    return left;
}

int64_t k_mandelbrot(int64_t size, int64_t max)
{
    int64_t inside = 0;
    for (int64_t y = 0; y < size; y++)
        for (int64_t x = 0; x < size; x++)
            inside += mandel(2.0 * (double)x / (double)size - 1.5,
                             2.0 * (double)y / (double)size - 1, max) == 0;
    return inside;
}

#define SOLAR_MASS 39.47841760435743
#define DAYS 365.24

typedef struct {
    double x, y, z, vx, vy, vz, mass;
} body_t;

static const body_t solar_system[5] = {
    {0, 0, 0, 0, 0, 0, SOLAR_MASS},
    {4.84143144246472090e+00, -1.16032004402742839e+00, -1.03622044471123109e-01,
     1.66007664274403694e-03 * DAYS, 7.69901118419740425e-03 * DAYS,
     -6.90460016972063023e-05 * DAYS, 9.54791938424326609e-04 * SOLAR_MASS},
    {8.34336671824457987e+00, 4.12479856412430479e+00, -4.03523417114321381e-01,
     -2.76742510726411610e-03 * DAYS, 4.99852801234917238e-03 * DAYS,
     2.30417297573763929e-05 * DAYS, 2.85885980666130812e-04 * SOLAR_MASS},
    {1.28943695621391310e+01, -1.51111514016986312e+01, -2.23307578892655734e-01,
     2.96460137564761618e-03 * DAYS, 2.37847173959480950e-03 * DAYS,
     -2.96589568540237556e-05 * DAYS, 4.36624404335156298e-05 * SOLAR_MASS},
    {1.53796971148509165e+01, -2.59193146099879641e+01, 1.79258772950371181e-01,
     2.68067772490389322e-03 * DAYS, 1.62824170038242295e-03 * DAYS,
     -9.51592254519715870e-05 * DAYS, 5.15138902046611451e-05 * SOLAR_MASS}};

static void nbody_step(body_t *b)
{
    for (int i = 0; i < 5; i++)
        for (int j = i + 1; j < 5; j++) {
            double dx = b[i].x - b[j].x, dy = b[i].y - b[j].y, dz = b[i].z - b[j].z;
            double d2 = dx * dx + dy * dy + dz * dz;
            double mag = 0.01 / (d2 * sqrt(d2));
            double mi = b[i].mass * mag, mj = b[j].mass * mag;
            b[i].vx -= dx * mj;
            b[i].vy -= dy * mj;
            b[i].vz -= dz * mj;
            b[j].vx += dx * mi;
            b[j].vy += dy * mi;
            b[j].vz += dz * mi;
        }
    for (int i = 0; i < 5; i++) {
        b[i].x += 0.01 * b[i].vx;
        b[i].y += 0.01 * b[i].vy;
        b[i].z += 0.01 * b[i].vz;
    }
}

double k_nbody(int64_t steps)
{
    body_t b[5];
    double px = 0, py = 0, pz = 0, e = 0;
    memcpy(b, solar_system, sizeof b);
    for (int i = 0; i < 5; i++) {
        px += b[i].vx * b[i].mass;
        py += b[i].vy * b[i].mass;
        pz += b[i].vz * b[i].mass;
    }
    b[0].vx = -px / SOLAR_MASS;
    b[0].vy = -py / SOLAR_MASS;
    b[0].vz = -pz / SOLAR_MASS;
    for (; steps > 0; steps--)
        nbody_step(b);
    for (int i = 0; i < 5; i++) {
        e += 0.5 * b[i].mass * (b[i].vx * b[i].vx + b[i].vy * b[i].vy + b[i].vz * b[i].vz);
        for (int j = i + 1; j < 5; j++) {
            double dx = b[i].x - b[j].x, dy = b[i].y - b[j].y, dz = b[i].z - b[j].z;
            e -= b[i].mass * b[j].mass / sqrt(dx * dx + dy * dy + dz * dz);
        }
    }
    return e;
}

double k_kepler(int64_t steps, double dt)
{
    double x = 1, y = 0, vx = 0, vy = 1;
    for (; steps > 0; steps--) {
        double r2 = x * x + y * y;
        double a = dt / (r2 * sqrt(r2));
        vx -= x * a;
        vy -= y * a;
        x += dt * vx;
        y += dt * vy;
    }
    return 0.5 * (vx * vx + vy * vy) - 1 / sqrt(x * x + y * y);
}

static double cell(int64_t i, int64_t j)
{
    return (double)((i + j) * (i + j + 1) / 2 + i + 1);
}

static void a_t_a(int64_t n, const double *in, double *between, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        between[i] = 0;
        for (int64_t j = 0; j < n; j++)
            between[i] += in[j] / cell(i, j);
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int64_t j = 0; j < n; j++)
            out[i] += between[j] / cell(j, i);
    }
}

double k_spectral_norm(int64_t n, double *work)
{
    double *u = work, *v = work + n, *between = work + 2 * n, uv = 0, vv = 0;
    for (int64_t i = 0; i < n; i++)
        u[i] = 1;
    for (int i = 0; i < 10; i++) {
        a_t_a(n, u, between, v);
        a_t_a(n, v, between, u);
    }
    for (int64_t i = 0; i < n; i++) {
        uv += u[i] * v[i];
        vv += v[i] * v[i];
    }
    return sqrt(uv / vv);
}

double k_spectral_sum(int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            sum += 1 / cell(i, j);
    return sum;
}

double k_logistic(int64_t n, double x)
{
    while (n-- > 0)
        x = 3.9 * x * (1 - x);
    return x;
}

/* Lists, as arrays ------------------------------------------------------- */

void k_matrix_product(const double *a, const double *b, int64_t n, double *out)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            out[i * n + j] = sum;
        }
}

int64_t k_levenshtein(const int64_t *a, size_t na, const int64_t *b, size_t nb, int64_t *row)
{
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int64_t)j;
    for (size_t i = 0; i < na; i++) {
        int64_t corner = row[0];
        row[0] = (int64_t)i + 1;
        for (size_t j = 0; j < nb; j++) {
            int64_t up = row[j + 1], d = corner + (a[i] != b[j]);
            d = up + 1 < d ? up + 1 : d;
            row[j + 1] = row[j] + 1 < d ? row[j] + 1 : d;
            corner = up;
        }
    }
    return row[nb];
}
