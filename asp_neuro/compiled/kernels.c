/* What takes too many calls of numpy for one cloud: groups, descriptors and tokens. Each function has a twin in numpy
   (asp_neuro/compiled/__init__.py says where), and tests hold the two together bit by bit.

   Whole numbers throughout; real ones (double) only where docs/integers.md names them, one operation after another, so
   compile with -ffp-contract=off. Products are of whole numbers below 2^24 in float, exact in any order. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 3 }; /* raise it, and that of __init__.py, when a function or its arguments change */
enum { LANES = 16, BLOCK = 12, POINT_BITS = 13, FEW = 128, N_DESCRIPTOR = 8, N_MOMENTS = 30, N_SHAPE = 59, STOREYS = 6 };

/* On x86 there are several forms of what is heavy, and the best that runs is taken. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define X86
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#define FUSED __attribute__((optimize("fp-contract=fast"))) /* exact either way */
#else
#define FOR_EACH_PROCESSOR
#define FUSED
#endif

/* ---- groups: farthest points, the nearest points of each, chunks ---- */

/* Squared distances [P] to point `at`, and to the nearest point so far; returns the point farthest from all. */
FOR_EACH_PROCESSOR
static int64_t farthest(const int32_t *restrict x, const int32_t *restrict y, const int32_t *restrict z, int64_t at,
                        int32_t *restrict square, int32_t *restrict nearest, int64_t n_points) {
    int32_t cx = x[at], cy = y[at], cz = z[at], best = -1;
    int64_t first = 0;
    for (int64_t p = 0; p < n_points; p++) {
        int32_t dx = x[p] - cx, dy = y[p] - cy, dz = z[p] - cz, far = dx * dx + dy * dy + dz * dz;
        int32_t near = far < nearest[p] ? far : nearest[p];
        square[p] = far, nearest[p] = near;
        best = near > best ? near : best;
    }
    while (nearest[first] != best) first++;
    return first;
}

/* Within it are at least k points, and seldom many more: of 2 k parts or more the k-th least distance. */
FOR_EACH_PROCESSOR
static int32_t reach(const int32_t *square, int64_t n, int64_t k, int32_t *scratch) {
    int32_t low = 0, high = INT32_MAX;
    for (int64_t half; (half = n / 2) >= 2 * k; n = half, square = scratch)
        for (int64_t i = 0; i < half; i++) scratch[i] = square[i] < square[half + i] ? square[i] : square[half + i];
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int64_t within = 0;
        for (int64_t i = 0; i < n; i++) within += square[i] <= middle;
        if (within >= k) high = middle; else low = middle + 1;
    }
    return low;
}

static int by_key(const void *a, const void *b) {
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

/* The k least of n different keys, in order; of few, each goes where the number of smaller ones says. */
FOR_EACH_PROCESSOR
static void least(int64_t *key, int64_t n, int64_t k, uint16_t *out) {
    if (n > FEW) qsort(key, (size_t)n, sizeof *key, by_key);
    for (int64_t i = 0; i < (n > FEW ? k : n); i++) {
        int64_t at = 0;
        if (n > FEW) at = i;
        else for (int64_t j = 0; j < n; j++) at += key[j] < key[i];
        if (at < k) out[at] = (uint16_t)(key[i] & ((1 << POINT_BITS) - 1));
    }
}

/* The k nearest of n points, nearest first, ties to the lower index. */
static void nearest_points(const int32_t *square, int64_t n, int64_t k, int32_t *scratch, int64_t *key, uint16_t *out) {
    int32_t limit = reach(square, n, k, scratch);
    int64_t found = 0;
    for (int64_t p = 0; p < n; p++) {
        key[found] = ((int64_t)square[p] << POINT_BITS) | p;
        found += square[p] <= limit;
    }
    least(key, found, k, out);
}

/* The nearest and the second nearest of m seeds; -1 where that is too far. */
static void nearest_seeds(const int32_t *square, int64_t stride, int64_t m, double over, double under, int8_t *first,
                          int8_t *second) {
    int64_t one = 0, other = -1;
    for (int64_t i = 1; i < m; i++) {
        int32_t far = square[i * stride];
        if (far < square[one * stride]) other = one, one = i;
        else if (other < 0 || far < square[other * stride]) other = i;
    }
    *first = (int8_t)one;
    *second = other < 0 || square[other * stride] * under > square[one * stride] * over ? -1 : (int8_t)other;
}

/* groups(steps i2 [P, 3], members u2 [G, K], first i1 [G], second i1 [G], P, G, K, M, over, under): a cloud's cut. */
static PyObject *groups(PyObject *self, PyObject *args) {
    Py_buffer steps, members, first, second;
    Py_ssize_t P, G, K, M;
    double over, under;
    if (!PyArg_ParseTuple(args, "y*w*w*w*nnnndd", &steps, &members, &first, &second, &P, &G, &K, &M, &over, &under))
        return NULL;
    int fits = K >= 1 && M >= 1 && M <= G && M <= 128 && K <= P && G <= P && P <= 1 << POINT_BITS &&
               steps.len == 6 * P && members.len == 2 * G * K && first.len == G && second.len == G;
    int32_t *memory = fits ? malloc((size_t)((5 + G) * P) * sizeof *memory) : NULL;
    int64_t *key = fits ? malloc((size_t)(P + 1) * sizeof *key) : NULL;
    int64_t *centre = fits ? malloc((size_t)G * sizeof *centre) : NULL;
    if (memory && key && centre) {
        int32_t *x = memory, *y = x + P, *z = y + P, *nearest = z + P, *scratch = nearest + P, *square = scratch + P;
        const int16_t *point = steps.buf;
        int64_t at = 0, most = -1;
        for (int64_t p = 0; p < P; p++) {
            x[p] = point[3 * p], y[p] = point[3 * p + 1], z[p] = point[3 * p + 2], nearest[p] = INT32_MAX;
            int32_t length = x[p] * x[p] + y[p] * y[p] + z[p] * z[p];
            if (length > most) most = length, at = p;
        }
        for (int64_t g = 0; g < G; g++) {
            centre[g] = at;
            at = farthest(x, y, z, at, square + g * P, nearest, P);
        }
        for (int64_t g = 0; g < G; g++) {
            nearest_points(square + g * P, P, K, scratch, key, (uint16_t *)members.buf + g * K);
            nearest_seeds(square + centre[g], P, M, over, under, (int8_t *)first.buf + g, (int8_t *)second.buf + g);
        }
    }
    int done = memory && key && centre;
    free(memory), free(key), free(centre);
    PyBuffer_Release(&steps), PyBuffer_Release(&members), PyBuffer_Release(&first), PyBuffer_Release(&second);
    if (!fits) return PyErr_Format(PyExc_ValueError, "groups: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- descriptors ---- */

static double on_grid(double x) { return rint(x * 65536.0) * (1.0 / 65536.0); }

/* Points [n, 3] of a chunk, each once -> its eight numbers. */
static void described(const int16_t (*point)[3], int64_t n, double *out) {
    int64_t total[3] = {0, 0, 0}, squares[3] = {0, 0, 0}, middle[3], farthest = 0;
    double norm = 0.0;
    for (int64_t p = 0; p < n; p++)
        for (int i = 0; i < 3; i++) total[i] += point[p][i], squares[i] += (int64_t)point[p][i] * point[p][i];
    for (int i = 0; i < 3; i++) {
        double mean = on_grid((double)total[i] * 0x1p-14 / (double)n);
        double variance = (double)squares[i] * 0x1p-28 / (double)n - mean * mean;
        out[i] = mean;
        out[3 + i] = on_grid(variance > 0.0 ? variance : 0.0);
        middle[i] = (int64_t)(mean * 65536.0);
        norm += mean * mean;
    }
    for (int64_t p = 0; p < n; p++) {
        int64_t far = 0;
        for (int i = 0; i < 3; i++) far += (4 * point[p][i] - middle[i]) * (4 * point[p][i] - middle[i]);
        farthest = far > farthest ? far : farthest;
    }
    out[6] = on_grid(sqrt((double)farthest * 0x1p-32));
    out[7] = on_grid(sqrt(norm));
}

/* descriptors(points i2 [n, P, 3], members u2 [n, G, K], first i1, second i1 [n, G], out f8 [n, M, 8], n, P, G, K, M) */
static PyObject *descriptors(PyObject *self, PyObject *args) {
    Py_buffer points, members, first, second, out;
    Py_ssize_t n, P, G, K, M;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*nnnnn", &points, &members, &first, &second, &out, &n, &P, &G, &K, &M))
        return NULL;
    int fits = points.len == 6 * n * P && members.len == 2 * n * G * K && first.len == n * G && second.len == n * G &&
               out.len == 8 * n * M * N_DESCRIPTOR;
    int32_t *seen = fits ? malloc((size_t)P * sizeof *seen) : NULL; /* the chunk that had a point last */
    int16_t(*mine)[3] = fits ? malloc((size_t)P * sizeof *mine) : NULL;
    int within = 1;
    for (int64_t i = 0; seen && mine && within && i < n * M; i++) {
        int64_t cloud = i / M, chunk = i % M, count = 0;
        const int16_t(*point)[3] = (const int16_t(*)[3])points.buf + cloud * P;
        const int8_t *one = (const int8_t *)first.buf + cloud * G, *other = (const int8_t *)second.buf + cloud * G;
        double *to = (double *)out.buf + i * N_DESCRIPTOR;
        if (chunk == 0) memset(seen, -1, (size_t)P * sizeof *seen);
        for (int64_t g = 0; g < G; g++) {
            if (one[g] != chunk && other[g] != chunk) continue;
            const uint16_t *member = (const uint16_t *)members.buf + (cloud * G + g) * K;
            for (int64_t k = 0; k < K; k++) {
                int64_t p = member[k];
                if (p >= P) within = 0;
                else if (seen[p] != chunk) seen[p] = (int32_t)chunk, memcpy(mine[count++], point[p], sizeof *mine);
            }
        }
        if (count) described((const int16_t(*)[3])mine, count, to);
        else for (int j = 0; j < N_DESCRIPTOR; j++) to[j] = NAN;
    }
    int done = seen && mine;
    free(seen), free(mine);
    PyBuffer_Release(&points), PyBuffer_Release(&members), PyBuffer_Release(&first), PyBuffer_Release(&second);
    PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "descriptors: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    if (!within) return PyErr_Format(PyExc_IndexError, "descriptors: a group has a point that is not there");
    Py_RETURN_NONE;
}

/* ---- tokens: the encoder of a group ---- */

/* A map: panels [width / LANES] of weights [n_in, LANES]; and what is added to its sums, [width], or NULL. */
typedef struct {
    int64_t n_in, width;
    const float *weight, *bias;
} Map;

/* Rows x [n, n_in] through a map; what becomes of a sum: */
enum { AS_IT_IS, TO_BYTE, LARGEST }; /* LARGEST: over all rows, then to a byte: out is [1, width] */

#define NAME(x) x##_plain
#define TARGET FUSED
#define BYTES 16
#define ROWS 2
#include "through.h"
#ifdef X86
#define NAME(x) x##_fma
#define TARGET FUSED __attribute__((target("avx2,fma")))
#define BYTES 32
#define ROWS 6
#include "through.h"
#define NAME(x) x##_avx512
#define TARGET FUSED __attribute__((target("avx512f")))
#define BYTES 64
#define ROWS 8
#include "through.h"
#endif

static void (*through)(const Map *, const float *, int64_t, int64_t, int, float *, int64_t) = through_plain;

static void choose_processor(void) {
#ifdef X86
    if (__builtin_cpu_supports("avx512f")) through = through_avx512;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) through = through_fma;
#endif
}

/* inner += floor(told) * scale, then to a byte: [width] */
FOR_EACH_PROCESSOR
static void add_geometry(float *inner, const float *told, const float *scale, int64_t width) {
    for (int64_t c = 0; c < width; c++) {
        float whole = (float)(int32_t)told[c], sum = inner[c] + (whole - (whole > told[c])) * scale[c];
        inner[c] = (float)(int32_t)(sum < 0.0f ? 0.0f : sum > 255.0f ? 255.0f : sum);
    }
}

static float moment(double x) {
    x = rint(x);
    return (float)(x < -2047.0 ? -2047.0 : x > 2047.0 ? 2047.0 : x);
}

/* Edges [k, 7] of a group -> mean, covariance and width of the nearest quarter, half and all of its offsets. */
static void moments(const float *edge, int64_t k, float *out) {
    static const int pair[6][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {0, 2}, {1, 2}};
    double total[3] = {0, 0, 0}, squares[6] = {0, 0, 0, 0, 0, 0}, second[6];
    int64_t p = 0;
    for (int share = 4; share >= 1; share /= 2, out += 10) {
        int64_t n = k / share > 1 ? k / share : 1;
        for (; p < n; p++) {
            double offset[3] = {edge[7 * p], edge[7 * p + 1], edge[7 * p + 2]};
            for (int i = 0; i < 3; i++) total[i] += offset[i];
            for (int e = 0; e < 6; e++) squares[e] += offset[pair[e][0]] * offset[pair[e][1]];
        }
        for (int e = 0; e < 6; e++) second[e] = (double)n * squares[e] - total[pair[e][0]] * total[pair[e][1]];
        double trace = second[0] + second[1] + second[2], root = sqrt(trace > 1.0 ? trace : 1.0);
        if (trace < 1.0) trace = 1.0;
        for (int i = 0; i < 3; i++) out[i] = moment(total[i] / root * 512.0);
        for (int e = 0; e < 6; e++) out[3 + e] = moment(second[e] / trace * 2048.0);
        out[9] = moment(root / ((double)n * 16384.0) * 2048.0);
    }
}

/* Points [P, 3] and the members [k] of a group -> edges [k, 7]: offset, centre in coarser steps, 1. */
static int edges_of(const int16_t (*point)[3], int64_t n_points, const uint16_t *member, int64_t k, float *edge) {
    for (int64_t p = 0; p < k; p++, edge += 7) {
        if (member[p] >= n_points) return 0;
        for (int i = 0; i < 3; i++) {
            edge[i] = (float)(point[member[p]][i] - point[member[0]][i]);
            edge[3 + i] = floorf((float)point[member[0]][i] * 0.25f + 0.5f);
        }
        edge[6] = 1.0f;
    }
    return 1;
}

/* tokens(points i2 [n, P, 3], members u2 [n, G, K], group i8 [m], weights f4, tokens f4 [n G, w], n, P, G, K, m,
          e1, e2, t, w): the tokens of these groups, numbered through, into their rows; weights as `packed` has them. */
static PyObject *tokens(PyObject *self, PyObject *args) {
    Py_buffer points, members, group, weights, out;
    Py_ssize_t n, P, G, K, m, e1, e2, t, w;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*nnnnnnnnn", &points, &members, &group, &weights, &out, &n, &P, &G, &K, &m,
                          &e1, &e2, &t, &w))
        return NULL;
    int64_t E1 = (e1 + LANES - 1) / LANES * LANES, E2 = (e2 + LANES - 1) / LANES * LANES, W = (w + LANES - 1) / LANES * LANES;
    int64_t n_weights = 7 * E1 + e1 * E2 + E2 + e2 * W + W + (t + 1) * W + W + w * W;
    int fits = points.len == 6 * n * P && members.len == 2 * n * G * K && group.len == 8 * m && K >= 1 &&
               (t == 3 || t == 3 + N_MOMENTS) && weights.len == 4 * n_weights && out.len == 4 * n * G * w;
    int64_t n_scratch = K * (7 + E1) + BLOCK * (E2 + t + 1 + 3 * W);
    float *scratch = fits ? malloc((size_t)n_scratch * sizeof *scratch) : NULL;
    int within = 1;
    if (scratch) {
        const float *at = weights.buf;
        Map edge_in = {7, E1, at, NULL}, edge_out = {e1, E2, at += 7 * E1, at + e1 * E2};
        Map token_in = {e2, W, at += e1 * E2 + E2, at + e2 * W}, geometry = {t + 1, W, at += e2 * W + W, NULL};
        const float *scale = at += (t + 1) * W;
        Map token_out = {w, W, at += W, NULL};
        float *edge = scratch, *hidden = edge + 7 * K, *grouped = hidden + K * E1, *told = grouped + BLOCK * E2;
        float *where = told + BLOCK * W, *inner = where + BLOCK * (t + 1), *token = inner + BLOCK * W;
        for (int64_t start = 0; within && start < m; start += BLOCK) {
            int64_t some = m - start < BLOCK ? m - start : BLOCK;
            const int64_t *number = (const int64_t *)group.buf + start;
            for (int64_t b = 0; within && b < some; b++) {
                within = number[b] >= 0 && number[b] < n * G &&
                         edges_of((const int16_t(*)[3])points.buf + number[b] / G * P, P,
                                  (const uint16_t *)members.buf + number[b] * K, K, edge);
                if (!within) break;
                through(&edge_in, edge, 7, K, TO_BYTE, hidden, E1);
                through(&edge_out, hidden, E1, K, LARGEST, grouped + b * E2, 0);
                memcpy(where + b * (t + 1), edge + 3, 3 * sizeof *edge);
                if (t > 3) moments(edge, K, where + b * (t + 1) + 3);
                where[b * (t + 1) + t] = 1.0f;
            }
            if (!within) break;
            through(&geometry, where, t + 1, some, AS_IT_IS, told, W);
            through(&token_in, grouped, E2, some, AS_IT_IS, inner, W);
            for (int64_t b = 0; b < some; b++) add_geometry(inner + b * W, told + b * W, scale, W);
            through(&token_out, inner, W, some, AS_IT_IS, token, W);
            for (int64_t b = 0; b < some; b++)
                memcpy((float *)out.buf + number[b] * w, token + b * W, (size_t)w * sizeof *token);
        }
    }
    free(scratch);
    PyBuffer_Release(&points), PyBuffer_Release(&members), PyBuffer_Release(&group), PyBuffer_Release(&weights);
    PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "tokens: sizes do not fit");
    if (!scratch) return PyErr_NoMemory();
    if (!within) return PyErr_Format(PyExc_IndexError, "tokens: a group, or a point of one, is not there");
    Py_RETURN_NONE;
}

/* ---- statistics of a cloud ---- */

/* Values [n] below 2^31 put in order, by three digits of 11 bits; `other` is as large. */
static void sort_values(uint32_t *value, uint32_t *other, int64_t n) {
    uint32_t count[3][2048] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < 3; d++) count[d][value[i] >> (11 * d) & 2047]++;
    for (int d = 0; d < 3; d++) {
        uint32_t *from = d % 2 ? other : value, *to = d % 2 ? value : other, before = 0;
        for (int b = 0; b < 2048; b++) {
            uint32_t here = count[d][b];
            count[d][b] = before, before += here;
        }
        for (int64_t i = 0; i < n; i++) to[count[d][from[i] >> (11 * d) & 2047]++] = from[i];
    }
    memcpy(value, other, (size_t)n * sizeof *value);
}

static uint32_t quantile(const uint32_t *ordered, int64_t n, double share) {
    return ordered[(int64_t)(share * (double)(n - 1))];
}

/* Points [3, n] in grid steps -> N_SHAPE numbers; the twin is cloud_statistics._shape. */
static void shape_of(const int32_t *point, int64_t n, uint32_t *value, uint32_t *other, double *out) {
    static const double shares[5] = {0.0, 0.1, 0.5, 0.9, 1.0}, radii[6] = {0.01, 0.1, 0.25, 0.5, 0.75, 0.9};
    static const double along_shares[4] = {0.1, 0.5, 0.9, 1.0};
    static const int pair[6][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {0, 2}, {1, 2}};
    const int32_t *x = point, *y = point + n, *z = point + 2 * n, middle = 1 << 15;
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (int axis = 0; axis < 3; axis++) {
        for (int64_t p = 0; p < n; p++) value[p] = (uint32_t)(point[axis * n + p] + middle);
        sort_values(value, other, n);
        for (int q = 0; q < 5; q++) *out++ = (double)((int32_t)quantile(value, n, shares[q]) - middle) / 16384.0;
        if (axis == 1) low = (int32_t)value[0] - middle, high = (int32_t)value[n - 1] - middle;
    }
    for (int with_y = 1; with_y >= 0; with_y--) {
        for (int64_t p = 0; p < n; p++) value[p] = (uint32_t)(x[p] * x[p] + z[p] * z[p] + with_y * y[p] * y[p]);
        sort_values(value, other, n);
        for (int q = 0; q < 6; q++) *out++ = sqrt((double)quantile(value, n, radii[q])) / 16384.0;
    }
    double moment[6];
    for (int e = 0; e < 6; e++) {
        int64_t sum = 0;
        for (int64_t p = 0; p < n; p++) sum += (int64_t)point[pair[e][0] * n + p] * point[pair[e][1] * n + p];
        *out++ = moment[e] = (double)sum / ((double)n * 268435456.0);
    }
    double xx = moment[0], yy = moment[1], zz = moment[2], xy = moment[3], xz = moment[4], yz = moment[5];
    double volume = xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz);
    double size = (xx + yy + zz) / 3.0, across = (xx - zz) / 2.0, half = (xx + zz) / 2.0;
    double apart = sqrt(across * across + xz * xz);
    *out++ = sqrt(sqrt((volume > 0.0 ? volume : 0.0) / (size * size * size)));
    *out++ = sqrt(half + apart);
    *out++ = sqrt(half - apart > 0.0 ? half - apart : 0.0);
    *out++ = sqrt(xy * xy + yz * yz);
    double along = across >= 0.0 ? across + apart : fabs(xz), aside = across >= 0.0 ? xz : apart - across;
    if (across < 0.0 && xz < 0.0) aside = -aside;
    double length = sqrt(along * along + aside * aside);
    double cosine = length > 0.0 ? along / length : 1.0, sine = length > 0.0 ? aside / length : 0.0;
    for (int side = 0; side < 2; side++) {
        for (int64_t p = 0; p < n; p++) {
            double a = side ? cosine * z[p] : cosine * x[p], b = side ? sine * x[p] : sine * z[p];
            float far = (float)fabs(side ? a - b : a + b);
            memcpy(value + p, &far, sizeof far); /* bits of numbers above 0 are in the order of the numbers */
        }
        sort_values(value, other, n);
        for (int q = 0; q < 4; q++) {
            uint32_t bits = quantile(value, n, along_shares[q]);
            float far;
            memcpy(&far, &bits, sizeof far);
            *out++ = (double)(far / 16384.0f);
        }
    }
    int64_t count[STOREYS] = {0}, square[STOREYS] = {0}, part[24] = {0}, empty = 0, most = 0;
    int32_t tall = high - low > 1 ? high - low : 1;
    for (int64_t p = 0; p < n; p++) {
        int32_t storey = (y[p] - low) * STOREYS / tall, ax = abs(x[p]), ay = abs(y[p]), az = abs(z[p]);
        if (storey > STOREYS - 1) storey = STOREYS - 1;
        count[storey]++, square[storey] += x[p] * x[p] + z[p] * z[p];
        int axis = az > (ay > ax ? ay : ax) ? 2 : ay > ax;
        part[axis * 8 + (x[p] > 0) * 4 + (y[p] > 0) * 2 + (z[p] > 0)]++;
    }
    for (int i = 0; i < STOREYS; i++) {
        out[i] = (double)count[i] / (double)n;
        out[STOREYS + i] = sqrt((double)square[i] / (double)(count[i] > 1 ? count[i] : 1)) / 16384.0;
    }
    for (int i = 0; i < 24; i++) {
        empty += (double)part[i] / (double)n < 0.002;
        most = part[i] > most ? part[i] : most;
    }
    out[2 * STOREYS] = (double)empty / 24.0;
    out[2 * STOREYS + 1] = (double)most / (double)n;
}

/* shape(points i4 [3, n], out f8 [N_SHAPE], n): coordinates within +-2^15. */
static PyObject *shape(PyObject *self, PyObject *args) {
    Py_buffer points, out;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "y*w*n", &points, &out, &n)) return NULL;
    int fits = n >= 1 && points.len == 12 * n && out.len == 8 * N_SHAPE;
    uint32_t *value = fits ? malloc((size_t)(2 * n) * sizeof *value) : NULL;
    int done = value != NULL;
    if (done) shape_of(points.buf, n, value, value + n, out.buf);
    free(value);
    PyBuffer_Release(&points), PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "shape: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* spans(points i4 [3, n], members u2 [G, K], out f8 [3, G], n, G, K): of each group the squared distance of its last
   point, how far its middle lies to one side, squared, in units of that, and how far it leans. */
static PyObject *spans(PyObject *self, PyObject *args) {
    Py_buffer points, members, out;
    Py_ssize_t n, G, K;
    if (!PyArg_ParseTuple(args, "y*y*w*nnn", &points, &members, &out, &n, &G, &K)) return NULL;
    int fits = K >= 1 && points.len == 12 * n && members.len == 2 * G * K && out.len == 24 * G, within = 1;
    for (int64_t g = 0; fits && within && g < G; g++) {
        const uint16_t *member = (const uint16_t *)members.buf + g * K;
        const int32_t *x = points.buf, *y = x + n, *z = y + n;
        double *to = (double *)out.buf + g, mx = 0, my = 0, mz = 0, xy = 0, zy = 0, all = 0, reach = 0, k = (double)K;
        for (int64_t i = 0; i < K && (within = member[i] < n); i++) {
            double dx = x[member[i]] - x[member[0]], dy = y[member[i]] - y[member[0]], dz = z[member[i]] - z[member[0]];
            mx += dx, my += dy, mz += dz, xy += dx * dy, zy += dz * dy;
            reach = dx * dx + dy * dy + dz * dz, all += reach;
        }
        double middle = mx * mx + my * my + mz * mz, every = k * all - middle, along = k * xy - mx * my;
        double across = k * zy - mz * my;
        to[0] = reach;
        to[G] = middle / (k * k * (reach > 1.0 ? reach : 1.0));
        to[2 * G] = sqrt(along * along + across * across) / (every > 1.0 ? every : 1.0);
    }
    PyBuffer_Release(&points), PyBuffer_Release(&members), PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "spans: sizes do not fit");
    if (!within) return PyErr_Format(PyExc_IndexError, "spans: a group has a point that is not there");
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"spans", spans, METH_VARARGS, NULL},
    {"shape", shape, METH_VARARGS, NULL},
    {"groups", groups, METH_VARARGS, NULL},
    {"descriptors", descriptors, METH_VARARGS, NULL},
    {"tokens", tokens, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
    PyObject *made = PyModule_Create(&module);
    choose_processor();
    if (made && PyModule_AddIntConstant(made, "VERSION", VERSION) < 0) Py_CLEAR(made);
    return made;
}
