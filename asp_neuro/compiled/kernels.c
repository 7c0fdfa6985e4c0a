/* What takes too many calls of numpy for one cloud: groups, descriptors, embeddings and so on. Each function has a twin in numpy
   (asp_neuro/compiled/__init__.py says where), and tests hold the two together bit by bit.

   Whole numbers throughout; real ones (double) only where docs/integers.md names them, one operation after another, so
   compile with -ffp-contract=off. Products are of whole numbers below 2^24 in float, exact in any order. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 14 }; /* raise it, and that of __init__.py, when a function or its arguments change */
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

/* ---- exp, tanh and LayerNorm: the twins are in grid/arithmetic.py, where the constants are explained ---- */

static inline __attribute__((always_inline)) double exp_of(double x) {
    double held = x < -60.0 ? -60.0 : x, whole = rint(held * 1.4426950408889634), out;
    int64_t exponent = (int32_t)whole + 1023;
    double scale;
    held -= whole * 6.93147180369123816490e-01;
    held -= whole * 1.90821492927058770002e-10;
    out = held * (1.0 / 3628800.0) + 1.0 / 362880.0;
    out = out * held + 1.0 / 40320.0;
    out = out * held + 1.0 / 5040.0;
    out = out * held + 1.0 / 720.0;
    out = out * held + 1.0 / 120.0;
    out = out * held + 1.0 / 24.0;
    out = out * held + 1.0 / 6.0;
    out = out * held + 0.5;
    out = out * held + 1.0;
    out = out * held + 1.0;
    exponent = (int64_t)((uint64_t)exponent << 52);
    memcpy(&scale, &exponent, sizeof scale); /* 2^whole */
    return out * scale;
}

FOR_EACH_PROCESSOR
static void exp_all(const double *x, double *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = exp_of(x[i]);
}

FOR_EACH_PROCESSOR
static void tanh_all(const double *z, double *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double decay = exp_of(fabs(z[i]) * -2.0), near = (1.0 - decay) / (decay + 1.0);
        out[i] = copysign(rint(near * 1073741824.0) * (1.0 / 1073741824.0), z[i]);
    }
}

/* Whole numbers [n, width] -> their LayerNorm; `more` is what stands under the root besides. */
FOR_EACH_PROCESSOR
static void normalise_all(const int64_t *x, const double *gain, const double *bias, double *out, int64_t n, int64_t width,
                          double more) {
    for (int64_t r = 0; r < n; r++, x += width, out += width) {
        int64_t total = 0, squares = 0;
        for (int64_t i = 0; i < width; i++) total += x[i], squares += x[i] * x[i];
        double root = sqrt((double)(width * squares - total * total) + more);
        for (int64_t i = 0; i < width; i++) out[i] = (double)(width * x[i] - total) / root * gain[i] + bias[i];
    }
}

/* exp(x f8 [n], out f8 [n]) and tanh: numbers, none of them NaN */
static PyObject *each(PyObject *args, void (*all)(const double *, double *, int64_t)) {
    Py_buffer x, out;
    if (!PyArg_ParseTuple(args, "y*w*", &x, &out)) return NULL;
    int fits = x.len == out.len && x.len % 8 == 0;
    if (fits) all(x.buf, out.buf, x.len / 8);
    PyBuffer_Release(&x), PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "exp, tanh: sizes do not fit");
    Py_RETURN_NONE;
}

static PyObject *exp_py(PyObject *self, PyObject *args) { return each(args, exp_all); }
static PyObject *tanh_py(PyObject *self, PyObject *args) { return each(args, tanh_all); }

/* normalise_int(x i8 [n, width], gain f8 [width], bias f8 [width], out f8 [n, width], n, width, more) */
static PyObject *normalise_int(PyObject *self, PyObject *args) {
    Py_buffer x, gain, bias, out;
    Py_ssize_t n, width;
    double more;
    if (!PyArg_ParseTuple(args, "y*y*y*w*nnd", &x, &gain, &bias, &out, &n, &width, &more)) return NULL;
    int fits = x.len == 8 * n * width && out.len == x.len && gain.len == 8 * width && bias.len == gain.len;
    if (fits) normalise_all(x.buf, gain.buf, bias.buf, out.buf, n, width, more);
    PyBuffer_Release(&x), PyBuffer_Release(&gain), PyBuffer_Release(&bias), PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "normalise_int: sizes do not fit");
    Py_RETURN_NONE;
}

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
FOR_EACH_PROCESSOR
static void nearest_points(const int32_t *square, int64_t n, int64_t k, int32_t *scratch, int64_t *key, uint16_t *out) {
    int32_t limit = reach(square, n, k, scratch);
    int64_t found = 0;
    for (int64_t start = 0, end; start < n; start = end) {
        int32_t closest = INT32_MAX;
        end = start + LANES < n ? start + LANES : n;
        for (int64_t p = start; p < end; p++) closest = square[p] < closest ? square[p] : closest;
        if (closest > limit) continue; /* as most: points are sorted, and neighbours stand together */
        for (int64_t p = start; p < end; p++) {
            key[found] = ((int64_t)square[p] << POINT_BITS) | p;
            found += square[p] <= limit;
        }
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

/* ---- embed: the encoder of groups, and the largest of each chunk ---- */

/* A map: panels [width / LANES] of weights [n_in, LANES]; and what is added to its sums, [width], or NULL. */
typedef struct {
    int64_t n_in, width;
    const float *weight, *bias;
} Map;

/* Rows x [n, n_in] through a map; what becomes of a sum: */
enum { AS_IT_IS, TO_BYTE, LARGEST }; /* LARGEST: over all rows, then to a byte: out is [1, width] */

static inline __attribute__((always_inline)) float floored_of(float x) {
    float whole = (float)(int32_t)x; /* toward zero */
    return whole - (whole > x ? 1.0f : 0.0f);
}

static inline __attribute__((always_inline)) float byte_of(float x) {
    int32_t whole = (int32_t)x; /* toward zero: below 0 all is 0 */
    whole = whole < 0 ? 0 : whole;
    return (float)(whole > 255 ? 255 : whole);
}

#define NAME(x) x##_plain
#define TARGET FUSED
#define BYTES 16
#define ROWS 2
#define PANELS 1
#include "through.h"
#ifdef X86
#define NAME(x) x##_fma
#define TARGET FUSED __attribute__((target("avx2,fma")))
#define BYTES 32
#define ROWS 6
#define PANELS 1
#include "through.h"
#define NAME(x) x##_avx512
#define TARGET FUSED __attribute__((target("avx512f")))
#define BYTES 64
#define ROWS 8
#define PANELS 2
#include "through.h"
#endif

static void (*through)(const Map *, const float *, int64_t, int64_t, int, float *, int64_t) = through_plain;

static void (*point_input)(const float *const *, const float *, const float *, const float *, int64_t,
                           float *) = point_input_plain;
static void (*context_input)(const float *, const float *, const float *, const float *, int64_t,
                             float *) = context_input_plain;

static void choose_processor(void) {
#ifdef X86
    if (__builtin_cpu_supports("avx512f"))
        through = through_avx512, point_input = point_input_avx512, context_input = context_input_avx512;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        through = through_fma, point_input = point_input_fma, context_input = context_input_fma;
#endif
}

/* inner += floor(told) * scale, then to a byte: [width] */
FOR_EACH_PROCESSOR
static void add_geometry(float *restrict inner, const float *restrict told, const float *restrict scale, int64_t width) {
    for (int64_t c = 0; c < width; c++) inner[c] = byte_of(inner[c] + floored_of(told[c]) * scale[c]);
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

/* An encoder: its maps out of one array, as CloudEncoder.packed makes it, and room for BLOCK groups of K points. */
typedef struct {
    Map edge_in, edge_out, token_in, geometry, token_out;
    const float *scale;
    float *edge, *hidden, *grouped, *told, *where, *inner, *token;
} Encoder;

static int64_t up_to_lanes(int64_t n) { return (n + LANES - 1) / LANES * LANES; }

static const float *take(const float **at, int64_t n) {
    *at += n;
    return *at - n;
}

static Encoder encoder(const float *at, int64_t e1, int64_t e2, int64_t t, int64_t w, int64_t K, float *room) {
    Encoder net = {.edge_in = {7, up_to_lanes(e1), NULL, NULL}, .edge_out = {e1, up_to_lanes(e2), NULL, NULL},
                   .token_in = {e2, up_to_lanes(w), NULL, NULL}, .geometry = {t + 1, up_to_lanes(w), NULL, NULL},
                   .token_out = {w, up_to_lanes(w), NULL, NULL}};
    const float *free = room;
    net.edge_in.weight = take(&at, 7 * net.edge_in.width);
    net.edge_out.weight = take(&at, e1 * net.edge_out.width);
    net.edge_out.bias = take(&at, net.edge_out.width);
    net.token_in.weight = take(&at, e2 * net.token_in.width);
    net.token_in.bias = take(&at, net.token_in.width);
    net.geometry.weight = take(&at, (t + 1) * net.geometry.width);
    net.scale = take(&at, net.token_in.width);
    net.token_out.weight = take(&at, w * net.token_out.width);
    net.edge = (float *)take(&free, 7 * K);
    net.hidden = (float *)take(&free, K * net.edge_in.width);
    net.grouped = (float *)take(&free, BLOCK * net.edge_out.width);
    net.told = (float *)take(&free, BLOCK * net.geometry.width);
    net.where = (float *)take(&free, BLOCK * (t + 1));
    net.inner = (float *)take(&free, BLOCK * net.token_in.width);
    net.token = (float *)free;
    return net;
}

/* The edges of group b of a block to what its token is made of. */
static void group_to_block(const Encoder *net, int64_t K, int64_t b) {
    int64_t n_told = net->geometry.n_in;
    float *where = net->where + b * n_told;
    through(&net->edge_in, net->edge, 7, K, TO_BYTE, net->hidden, net->edge_in.width);
    through(&net->edge_out, net->hidden, net->edge_in.width, K, LARGEST, net->grouped + b * net->edge_out.width, 0);
    memcpy(where, net->edge + 3, 3 * sizeof *where);
    if (n_told > 4) moments(net->edge, K, where + 3);
    where[n_told - 1] = 1.0f;
}

/* `some` groups of a block -> their tokens, [some, width]. */
static void block_to_tokens(const Encoder *net, int64_t some) {
    int64_t W = net->token_in.width;
    through(&net->geometry, net->where, net->geometry.n_in, some, AS_IT_IS, net->told, W);
    through(&net->token_in, net->grouped, net->edge_out.width, some, AS_IT_IS, net->inner, W);
    for (int64_t b = 0; b < some; b++) add_geometry(net->inner + b * W, net->told + b * W, net->scale, W);
    through(&net->token_out, net->inner, W, some, AS_IT_IS, net->token, W);
}

/* The largest of the tokens [.., w] of a scene's groups in a chunk, [w]. */
FOR_EACH_PROCESSOR
static void pool(const float *token, const int8_t *first, const int8_t *second, int64_t place, int64_t G, int64_t w,
                 float *restrict out) {
    for (int64_t i = 0; i < w; i++) out[i] = -INFINITY;
    for (int64_t g = 0; g < G; g++, token += w)
        if (first[g] == place || second[g] == place)
            for (int64_t i = 0; i < w; i++) out[i] = token[i] > out[i] ? token[i] : out[i];
}

/* embed(points i2 [n, P, 3], members u2 [n, G, K], first i1, second i1 [n, G], rows i8, place i8 [b], weights f4,
         known b1 [n G], tokens f4 [n G, w], pooled f4 [b, w], n, P, G, K, b, e1, e2, t, w) -> groups that were new */
static PyObject *embed(PyObject *self, PyObject *args) {
    Py_buffer in[7], out[3];
    Py_ssize_t n, P, G, K, b, e1, e2, t, w;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*w*w*w*nnnnnnnnn", in, in + 1, in + 2, in + 3, in + 4, in + 5, in + 6, out,
                          out + 1, out + 2, &n, &P, &G, &K, &b, &e1, &e2, &t, &w))
        return NULL;
    int64_t E1 = up_to_lanes(e1), E2 = up_to_lanes(e2), W = up_to_lanes(w), n_new = 0;
    int64_t n_weights = 7 * E1 + e1 * E2 + E2 + e2 * W + W + (t + 1) * W + W + w * W;
    int fits = in[0].len == 6 * n * P && in[1].len == 2 * n * G * K && in[2].len == n * G && in[3].len == n * G &&
               in[4].len == 8 * b && in[5].len == 8 * b && in[6].len == 4 * n_weights && out[0].len == n * G &&
               out[1].len == 4 * n * G * w && out[2].len == 4 * b * w && K >= 1 && (t == 3 || t == 3 + N_MOMENTS);
    int64_t n_room = K * (7 + E1) + BLOCK * (E2 + t + 1 + 3 * W);
    float *room = fits ? malloc((size_t)n_room * sizeof *room) : NULL, *token = out[1].buf;
    const int8_t *first = in[2].buf, *second = in[3].buf;
    const int64_t *row = in[4].buf, *place = in[5].buf;
    int8_t *known = out[0].buf;
    int within = room != NULL;
    if (within) {
        Encoder net = encoder(in[6].buf, e1, e2, t, w, K, room);
        int64_t number[BLOCK], some = 0;
        for (int64_t i = 0; within && i < b * G; i++) {
            int64_t cloud = row[i / G], at = cloud * G + i % G;
            within = cloud >= 0 && cloud < n;
            if (within && !known[at] && (first[at] == place[i / G] || second[at] == place[i / G])) {
                const int16_t(*point)[3] = (const int16_t(*)[3])in[0].buf + cloud * P;
                within = edges_of(point, P, (const uint16_t *)in[1].buf + at * K, K, net.edge);
                if (within) group_to_block(&net, K, some), number[some++] = at, known[at] = 1, n_new++;
            }
            if (some == BLOCK || (some && i == b * G - 1)) {
                block_to_tokens(&net, some);
                while (some--) memcpy(token + number[some] * w, net.token + some * W, (size_t)w * sizeof *token);
                some = 0;
            }
        }
        for (int64_t i = 0; within && i < b; i++) {
            int64_t start = row[i] * G;
            pool(token + start * w, first + start, second + start, place[i], G, w, (float *)out[2].buf + i * w);
        }
    }
    int done = room != NULL;
    free(room);
    for (int i = 0; i < 7; i++) PyBuffer_Release(in + i);
    for (int i = 0; i < 3; i++) PyBuffer_Release(out + i);
    if (!fits) return PyErr_Format(PyExc_ValueError, "embed: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    if (!within) return PyErr_Format(PyExc_IndexError, "embed: a scene, or a point of a group, is not there");
    return PyLong_FromLongLong(n_new);
}

/* ---- a step of the mixer; the twin is model.mixer.Mixer.step ---- */

static double clipped(double x, double limit) { return x < -limit ? -limit : x > limit ? limit : x; }

/* What is read from the carry [D], whole numbers -> whole numbers of at most `room` bits. */
FOR_EACH_PROCESSOR
static void brought_down(const double *mixed, int64_t D, int room, int64_t *out) {
    double most = 0.0;
    int exponent;
    for (int64_t i = 0; i < D; i++) most = fabs(mixed[i]) > most ? fabs(mixed[i]) : most;
    frexp(most, &exponent);
    double scale = ldexp(1.0, room < exponent ? room - exponent : 0);
    for (int64_t i = 0; i < D; i++) out[i] = (int64_t)floor(mixed[i] * scale + 0.5);
}

/* One scene: gates [5 D] of its embedding -> the carry [D] after, and what is read from it. */
FOR_EACH_PROCESSOR
static void carried(const float *gate, const double *carry, const double *table, int64_t D, double skip_scale,
                    double *after, double *mixed) {
    for (int64_t i = 0; i < D; i++) {
        double keep = table[(int)gate[i] + 128], write = table[(int)gate[D + i] + 128];
        after[i] = floor(keep * carry[i] * 0x1p-12 + 0.5) + floor(write * gate[2 * D + i] * 0x1p-8 + 0.5);
        mixed[i] = gate[4 * D + i] * skip_scale + gate[3 * D + i] * after[i];
    }
}

/* step(carry f8 [b, D], embedding f4 [b, w], norm f8 [2, w], gates f4: panels of [w, 5 D], and biases; drive_norm f8
        [2, D], table f8 [256], drive f8 [b, D], after f8 [b, D], b, w, D, skip_scale, room, more_embedding, more_drive,
        value_max, drive_max) */
static PyObject *step(PyObject *self, PyObject *args) {
    Py_buffer in[6], out[2];
    Py_ssize_t b, w, D;
    double skip_scale, more[2], value_max, drive_max;
    int room;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*w*w*nnndidddd", in, in + 1, in + 2, in + 3, in + 4, in + 5, out, out + 1, &b,
                          &w, &D, &skip_scale, &room, more, more + 1, &value_max, &drive_max))
        return NULL;
    int64_t width = up_to_lanes(5 * D);
    int fits = in[0].len == 8 * b * D && in[1].len == 4 * b * w && in[2].len == 16 * w &&
               in[3].len == 4 * (w + 1) * width && in[4].len == 16 * D && in[5].len == 8 * 256 &&
               out[0].len == 8 * b * D && out[1].len == out[0].len;
    int64_t longer = w > D ? w : D;
    int64_t *whole = fits ? malloc((size_t)longer * 8) : NULL;
    double *normed = fits ? malloc((size_t)longer * 8) : NULL;
    float *row = fits ? malloc((size_t)(longer + width) * 4) : NULL, *gate = row + longer;
    int done = whole && normed && row;
    for (int64_t r = 0; done && r < b; r++) {
        const float *embedding = (const float *)in[1].buf + r * w;
        const double *norm = in[2].buf, *drive_norm = in[4].buf;
        double *drive = (double *)out[0].buf + r * D, *after = (double *)out[1].buf + r * D;
        Map gates = {w, width, in[3].buf, (const float *)in[3].buf + w * width};
        for (int64_t i = 0; i < w; i++) whole[i] = (int64_t)embedding[i];
        normalise_all(whole, norm, norm + w, normed, 1, w, more[0]);
        for (int64_t i = 0; i < w; i++) row[i] = (float)clipped(rint(normed[i]), 127.0);
        through(&gates, row, w, 1, AS_IT_IS, gate, width);
        for (int64_t i = 0; i < 5 * D; i++) gate[i] = (float)clipped(floor(gate[i]), i < 2 * D ? 127.0 : value_max);
        carried(gate, (const double *)in[0].buf + r * D, in[5].buf, D, skip_scale, after, normed);
        brought_down(normed, D, room, whole);
        normalise_all(whole, drive_norm, drive_norm + D, drive, 1, D, more[1]);
        for (int64_t i = 0; i < D; i++) drive[i] = clipped(rint(drive[i]), drive_max);
    }
    free(whole), free(normed), free(row);
    for (int i = 0; i < 6; i++) PyBuffer_Release(in + i);
    PyBuffer_Release(out), PyBuffer_Release(out + 1);
    if (!fits) return PyErr_Format(PyExc_ValueError, "step: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- a layer of the soft head; the twin is heads.soft.fast.FastHead.observe ---- */

/* layer(z f4 [b, n], panels f4 of [n, H], constants f8 [4, H]: bias, leak, theta, theta_fire; membranes f8, spikes f4
         [b, H], held f8, fired f4, far f8 [b, H], b, n, H, align) -> the largest |drive|, the largest and the least far */
static PyObject *layer(PyObject *self, PyObject *args) {
    Py_buffer in[5], out[3];
    Py_ssize_t b, n, H;
    double align, pushed = 0.0, most = 0.0, least_far = INFINITY;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*w*w*nnnd", in, in + 1, in + 2, in + 3, in + 4, out, out + 1, out + 2, &b, &n,
                          &H, &align))
        return NULL;
    int64_t width = up_to_lanes(H);
    int fits = in[0].len == 4 * b * n && in[1].len == 4 * n * width && in[2].len == 32 * H && in[3].len == 8 * b * H &&
               in[4].len == 4 * b * H && out[0].len == 8 * b * H && out[1].len == 4 * b * H && out[2].len == 8 * b * H;
    float *sum = fits ? malloc((size_t)(b * width + 1) * sizeof *sum) : NULL;
    int done = sum != NULL;
    if (done) {
        Map map = {n, width, in[1].buf, NULL};
        const double *bias = in[2].buf, *leak = bias + H, *theta = leak + H, *theta_fire = theta + H;
        through(&map, in[0].buf, n, b, AS_IT_IS, sum, width);
        for (int64_t i = 0; i < b * H; i++) {
            int64_t h = i % H;
            double drive = sum[i / H * width + h] * align + bias[h];
            double held = trunc(((const double *)in[3].buf)[i] * leak[h]) + (drive > 0.0 ? drive : 0.0) -
                          theta[h] * ((const float *)in[4].buf)[i];
            double above = held - theta_fire[h], far = fabs(above);
            pushed = fabs(drive) > pushed ? fabs(drive) : pushed;
            most = far > most ? far : most, least_far = far < least_far ? far : least_far;
            ((double *)out[0].buf)[i] = held, ((double *)out[2].buf)[i] = far;
            ((float *)out[1].buf)[i] = above > 0.0;
        }
    }
    free(sum);
    for (int i = 0; i < 5; i++) PyBuffer_Release(in + i);
    for (int i = 0; i < 3; i++) PyBuffer_Release(out + i);
    if (!fits) return PyErr_Format(PyExc_ValueError, "layer: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    return Py_BuildValue("ddd", pushed, most, least_far);
}

/* ---- a raw cloud on the grid: the twin is scenes.cloud._distinct_keys ---- */

/* Keys [n] of 48 bits put in order, byte by byte; `other` is as large. */
static void sort_keys(uint64_t *key, uint64_t *other, int64_t n) {
    uint64_t *from = key, *to = other;
    for (int d = 0; d < 6; d++) {
        uint32_t count[256] = {0}, before = 0;
        for (int64_t i = 0; i < n; i++) count[from[i] >> (8 * d) & 255]++;
        for (int b = 0; b < 256; b++) {
            uint32_t here = count[b];
            count[b] = before, before += here;
        }
        for (int64_t i = 0; i < n; i++) to[count[from[i] >> (8 * d) & 255]++] = from[i];
        uint64_t *swap = from;
        from = to, to = swap;
    } /* an even number of passes: all is back in `key` */
}

/* Raw points [n, 3] -> their mean, if they add up exactly in any order (cloud.adds_exactly). */
FOR_EACH_PROCESSOR
static int exact_mean(const double *raw, int64_t n, double *mean) {
    double most = 0.0, sum[3] = {0};
    int exponent, bits = 0, exact = 1;
    for (int64_t i = 0; i < 3 * n; i++) {
        double size = fabs(raw[i]);
        most = size > most ? size : most;
        exact &= isfinite(raw[i]) != 0;
    }
    if (!exact) return 0;
    frexp(most, &exponent);
    if (abs(exponent) > 400) return 0;
    while (n >> bits) bits++;
    const double anchor = ldexp(1.5, exponent + bits - 1);
    for (int64_t i = 0; i < 3 * n; i++) {
        double moved = raw[i] + anchor;
        exact &= moved - anchor == raw[i];
    }
    for (int64_t i = 0; i < n; i++)
        for (int axis = 0; axis < 3; axis++) sum[axis] += raw[3 * i + axis];
    for (int axis = 0; axis < 3; axis++) mean[axis] = sum[axis] / (double)n;
    return exact;
}

/* to_grid(raw f8 [n, 3], out i2 [n, 3], n) -> whether it could be done here: points that add up exactly, none of which
   falls on another one, centred, scaled to the unit sphere and sorted. */
static PyObject *to_grid(PyObject *self, PyObject *args) {
    Py_buffer raw, out;
    Py_ssize_t n;
    if (!PyArg_ParseTuple(args, "y*w*n", &raw, &out, &n)) return NULL;
    int fits = n >= 1 && raw.len == 24 * n && out.len == 6 * n;
    uint64_t *key = fits ? malloc((size_t)(2 * n) * sizeof *key) : NULL;
    const double *point = raw.buf;
    double mean[3], far = 0.0;
    int done = key && exact_mean(point, n, mean);
    for (int64_t i = 0; done && i < n; i++) {
        double x = point[3 * i] - mean[0], y = point[3 * i + 1] - mean[1], z = point[3 * i + 2] - mean[2];
        double square = x * x + y * y + z * z;
        far = square > far ? square : far;
    }
    done = done && sqrt(far) > 0.0;
    if (done) {
        const double scale = 16384.0 / sqrt(far);
        for (int64_t i = 0; i < n; i++) {
            uint64_t all = 0;
            for (int axis = 0; axis < 3; axis++)
                all = all << 16 | (uint64_t)((int64_t)rint((point[3 * i + axis] - mean[axis]) * scale) + (1 << 15));
            key[i] = all;
        }
        sort_keys(key, key + n, n);
        for (int64_t i = 1; i < n; i++) done &= key[i] != key[i - 1];
        for (int64_t i = 0; i < n; i++)
            for (int axis = 0; axis < 3; axis++)
                ((int16_t *)out.buf)[3 * i + axis] = (int16_t)((int64_t)(key[i] >> (16 * (2 - axis)) & 65535) - (1 << 15));
    }
    free(key);
    PyBuffer_Release(&raw), PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "to_grid: sizes do not fit");
    if (!key) return PyErr_NoMemory();
    return PyBool_FromLong(done);
}

/* ---- statistics of a cloud ---- */

/* Values [n] put in order, byte by byte; `other` is as large. */
static void sort_values(uint32_t *value, uint32_t *other, int64_t n) {
    uint32_t count[4][256] = {{0}}, *from = value, *to = other;
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < 4; d++) count[d][value[i] >> (8 * d) & 255]++;
    for (int d = 0; d < 4; d++) {
        if (count[d][value[0] >> (8 * d) & 255] == n) continue; /* all have the same byte here */
        uint32_t before = 0;
        for (int b = 0; b < 256; b++) {
            uint32_t here = count[d][b];
            count[d][b] = before, before += here;
        }
        for (int64_t i = 0; i < n; i++) to[count[d][from[i] >> (8 * d) & 255]++] = from[i];
        uint32_t *swap = from;
        from = to, to = swap;
    }
    if (from != value) memcpy(value, from, (size_t)n * sizeof *value);
}

static uint32_t quantile(const uint32_t *ordered, int64_t n, double share) {
    return ordered[(int64_t)(share * (double)(n - 1))];
}

/* The most of ascending values [n] within one width. */
static int64_t fullest(const uint32_t *ordered, int64_t n, uint32_t width) {
    int64_t most = 0, end = 0;
    for (int64_t start = 0; start < n; start++) {
        while (end < n && ordered[end] <= ordered[start] + width) end++;
        most = end - start > most ? end - start : most;
    }
    return most;
}

/* Ascending heights [n] -> shares of the points in the fullest, the lowest and the highest layer. */
static void levels_of(const uint32_t *y, int64_t n, uint32_t width, double *out) {
    int64_t low = 0, high = 0;
    for (int64_t p = 0; p < n; p++) low += y[p] <= y[0] + width, high += y[p] + width >= y[n - 1];
    out[0] = (double)fullest(y, n, width) / (double)n, out[1] = (double)low / (double)n, out[2] = (double)high / (double)n;
}

/* Points [3, n] in grid steps, within +-2^15 -> N_SHAPE numbers, and 8 of layers of two widths; the twins are
   cloud_statistics._shape and _layers. */
static void shape_of(const int32_t *point, int64_t n, uint32_t *value, uint32_t *other, uint32_t thin, uint32_t thicker,
                     double *out, double *layers) {
    static const double shares[5] = {0.0, 0.1, 0.5, 0.9, 1.0}, radii[6] = {0.01, 0.1, 0.25, 0.5, 0.75, 0.9};
    static const double along_shares[4] = {0.1, 0.5, 0.9, 1.0};
    static const int pair[6][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {0, 2}, {1, 2}};
    const int32_t *x = point, *y = point + n, *z = point + 2 * n, middle = 1 << 15;
    int32_t low = INT32_MAX, high = INT32_MIN;
    for (int axis = 0; axis < 3; axis++) {
        for (int64_t p = 0; p < n; p++) value[p] = (uint32_t)(point[axis * n + p] + middle);
        sort_values(value, other, n);
        for (int q = 0; q < 5; q++) *out++ = (double)((int32_t)quantile(value, n, shares[q]) - middle) / 16384.0;
        if (axis == 1) {
            low = (int32_t)value[0] - middle, high = (int32_t)value[n - 1] - middle;
            levels_of(value, n, thin, layers), levels_of(value, n, thicker, layers + 3);
        } else
            layers[axis ? 7 : 6] = (double)fullest(value, n, thin) / (double)n;
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

/* Points [3, n] and a group [K] -> the squared distance of its last point, how far its middle lies to one side,
   squared, in units of that, and how far it leans. */
static void span_of(const int32_t *x, int64_t n, const uint16_t *member, int64_t K, double *reaches, double *sides, double *leans) {
    const int32_t *y = x + n, *z = y + n;
    double mx = 0, my = 0, mz = 0, xy = 0, zy = 0, all = 0, reach = 0, k = (double)K;
    for (int64_t i = 0; i < K; i++) {
        double dx = x[member[i]] - x[member[0]], dy = y[member[i]] - y[member[0]], dz = z[member[i]] - z[member[0]];
        mx += dx, my += dy, mz += dz, xy += dx * dy, zy += dz * dy;
        reach = dx * dx + dy * dy + dz * dz, all += reach;
    }
    double middle = mx * mx + my * my + mz * mz, every = k * all - middle, along = k * xy - mx * my;
    double across = k * zy - mz * my;
    *reaches = reach;
    *sides = middle / (k * k * (reach > 1.0 ? reach : 1.0));
    *leans = sqrt(along * along + across * across) / (every > 1.0 ? every : 1.0);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Points [3, n] and groups [G, K] -> 15 quantiles; `span` has room for [3, G]. */
static void groups_of(const int32_t *x, int64_t n, const uint16_t *members, int64_t G, int64_t K, double *span, double *out) {
    static const double shares[2][5] = {{0.0, 0.1, 0.5, 0.9, 1.0}, {0.1, 0.25, 0.5, 0.75, 0.9}};
    for (int64_t g = 0; g < G; g++) span_of(x, n, members + g * K, K, span + g, span + G + g, span + 2 * G + g);
    for (int kind = 0; kind < 3; kind++, span += G) {
        qsort(span, (size_t)G, sizeof *span, by_size);
        for (int q = 0; q < 5; q++) {
            double value = span[(int64_t)(shares[kind == 2][q] * (double)(G - 1))];
            *out++ = kind == 2 ? value : kind == 1 ? sqrt(value) : sqrt(value) / 16384.0;
        }
    }
}

/* statistics(points i2 [P, 3], members u2 [G, K], out f8 [N_SHAPE + 15 + 8], n, G, K, thin, thicker): of the first n
   points, and of layers of these widths. */
static PyObject *statistics(PyObject *self, PyObject *args) {
    Py_buffer points, members, out;
    Py_ssize_t n, G, K;
    int thin, thicker;
    if (!PyArg_ParseTuple(args, "y*y*w*nnnii", &points, &members, &out, &n, &G, &K, &thin, &thicker)) return NULL;
    const uint16_t *member = members.buf;
    int fits = n >= 1 && G >= 1 && K >= 1 && points.len >= 6 * n && members.len == 2 * G * K && out.len == 8 * (N_SHAPE + 23);
    for (int64_t i = 0; fits && i < G * K; i++) fits = member[i] < n;
    int32_t *planes = fits ? malloc((size_t)(5 * n) * sizeof *planes) : NULL;
    double *span = fits ? malloc((size_t)(3 * G) * sizeof *span) : NULL;
    int done = planes && span;
    if (done) {
        double *to = out.buf;
        uint32_t *value = (uint32_t *)planes + 3 * n;
        for (int64_t p = 0; p < n; p++)
            for (int axis = 0; axis < 3; axis++) planes[axis * n + p] = ((const int16_t *)points.buf)[3 * p + axis];
        shape_of(planes, n, value, value + n, (uint32_t)thin, (uint32_t)thicker, to, to + N_SHAPE + 15);
        groups_of(planes, n, member, G, K, span, to + N_SHAPE);
    }
    free(planes), free(span);
    PyBuffer_Release(&points), PyBuffer_Release(&members), PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "statistics: sizes do not fit, or a group has a point that is not there");
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- strays: the twin is in scenes/strays.py ---- */

enum { NEAR = 3, WINDOW = 4, SAMPLE = 128, BOX = 16 };

/* The box around every BOX points in Morton order: edges [6, boxes], lowest x, y, z, then highest. */
static void boxes_of(const double *xyz, int64_t n, int64_t boxes, double *edges) {
    for (int axis = 0; axis < 3; axis++)
        for (int64_t box = 0; box < boxes; box++) {
            const double *at = xyz + axis * n;
            double low = INFINITY, high = -INFINITY;
            for (int64_t i = box * BOX; i < n && i < (box + 1) * BOX; i++) {
                low = at[i] < low ? at[i] : low, high = at[i] > high ? at[i] : high;
            }
            edges[axis * boxes + box] = low, edges[(3 + axis) * boxes + box] = high;
        }
}

/* Squared distances from point i to all boxes. */
FOR_EACH_PROCESSOR
static void to_boxes(const double *xyz, int64_t n, int64_t i, int64_t boxes, const double *edges, double *out) {
    for (int64_t box = 0; box < boxes; box++) {
        double sum = 0.0;
        for (int axis = 0; axis < 3; axis++) {
            double at = xyz[axis * n + i], below = edges[axis * boxes + box] - at, above = at - edges[(3 + axis) * boxes + box];
            double off = below > above ? below : above;
            off = off > 0.0 ? off : 0.0;
            sum += off * off;
        }
        out[box] = sum;
    }
}

/* The points of one box into the three nearest squared distances to point i. */
static void nearer(const double *xyz, int64_t n, int64_t i, int64_t box, double *nearest) {
    const double *x = xyz, *y = xyz + n, *z = xyz + 2 * n;
    for (int64_t j = box * BOX; j < n && j < (box + 1) * BOX; j++) {
        double dx = x[j] - x[i], dy = y[j] - y[i], dz = z[j] - z[i], here = dx * dx + dy * dy + dz * dz;
        if (j == i || here >= nearest[2]) continue;
        nearest[2] = here;
        for (int k = 1; k >= 0 && nearest[k + 1] < nearest[k]; k--) {
            double other = nearest[k];
            nearest[k] = nearest[k + 1], nearest[k + 1] = other;
        }
    }
}

/* The distance from point i to its third nearest other; edges have room for the boxes and the way to each. */
static double third(const double *xyz, int64_t n, int64_t i, int64_t boxes, double *edges) {
    double nearest[NEAR] = {INFINITY, INFINITY, INFINITY}, *away = edges + 6 * boxes;
    to_boxes(xyz, n, i, boxes, edges, away);
    nearer(xyz, n, i, i / BOX, nearest);
    for (int64_t box = 0; box < boxes; box++)
        if (box != i / BOX && away[box] < nearest[2]) nearer(xyz, n, i, box, nearest);
    return sqrt(nearest[2]);
}

/* Whether three others are within reach among those next to point i in Morton order. */
static int surely_near(const double *xyz, int64_t n, int64_t i, double limit) {
    int64_t last = i + WINDOW < n - 1 ? i + WINDOW : n - 1;
    int near = 0;
    for (int64_t j = i > WINDOW ? i - WINDOW : 0; j <= last; j++) {
        double dx = xyz[j] - xyz[i], dy = xyz[n + j] - xyz[n + i], dz = xyz[2 * n + j] - xyz[2 * n + i];
        near += j != i && dx * dx + dy * dy + dz * dz <= limit;
    }
    return near >= NEAR;
}

/* alone(xyz f8 [3, n] whole numbers in Morton order, out u1 [n], n, factor): which points stand alone. */
static PyObject *alone(PyObject *self, PyObject *args) {
    Py_buffer points, out;
    Py_ssize_t n;
    double factor, usual[SAMPLE];
    if (!PyArg_ParseTuple(args, "y*w*nd", &points, &out, &n, &factor)) return NULL;
    int fits = n > NEAR && points.len == 24 * n && out.len == n, count = 0;
    const int64_t boxes = (n + BOX - 1) / BOX;
    double *edges = fits ? malloc((size_t)(7 * boxes) * sizeof *edges) : NULL;
    if (edges) {
        const double *xyz = points.buf;
        const int64_t apart = (n + SAMPLE - 1) / SAMPLE;
        boxes_of(xyz, n, boxes, edges);
        for (int64_t i = 0; i < n; i += apart) usual[count++] = third(xyz, n, i, boxes, edges);
        qsort(usual, (size_t)count, sizeof *usual, by_size);
        double reach = factor * (count % 2 ? usual[count / 2] : (usual[count / 2 - 1] + usual[count / 2]) / 2.0);
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)out.buf)[i] = !surely_near(xyz, n, i, reach * reach) && third(xyz, n, i, boxes, edges) > reach;
    }
    free(edges);
    PyBuffer_Release(&points), PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "alone: sizes do not fit");
    if (!edges) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---- points of a cloud: what they hear of the seen groups, and their logits; the twins are in tasks/parts.py ---- */

enum { POINTS = 24, N_FEATURE = 8 };
static const double NEARBY = 1e-4 * 16384.0 * 16384.0, DISTANCE_HALF = 0.2 * 16384.0, OFFSET_MAX = 6552.0;

/* A group's key is its squared distance, a whole number below 2^34, times `pitch`, a power of two, and its number: the
   least key is the nearest group, of equals the first. Keys are not negative, so their bits are in the same order. */
typedef int64_t Bits __attribute__((may_alias));

static double pitch_of(int64_t G) {
    double pitch = 1.0;
    while (pitch < (double)G) pitch *= 2.0;
    return pitch;
}

/* Keys [G] of the groups for a point; centres are three rows of G. */
static inline __attribute__((always_inline)) void keys_of(const double *query, const double *centre, int64_t G,
                                                          double pitch, double *restrict key) {
    for (int64_t g = 0; g < G; g++) {
        double x = query[0] - centre[g], y = query[1] - centre[G + g], z = query[2] - centre[2 * G + g];
        key[g] = (x * x + y * y + z * z) * pitch + (double)(int32_t)g;
    }
}

/* The least key: its group, -1 for none, and its squared distance. */
static inline __attribute__((always_inline)) int64_t nearest_of(const double *key, int64_t G, double pitch, double *square) {
    const Bits *bits = (const Bits *)key;
    int64_t least = INT64_MAX;
    double found;
    for (int64_t g = 0; g < G; g++) least = bits[g] < least ? bits[g] : least;
    memcpy(&found, &least, sizeof found);
    *square = floor(found / pitch);
    return found < INFINITY && found - *square * pitch < (double)G ? (int64_t)(found - *square * pitch) : -1;
}

/* The nearest group of all, and the three nearest seen ones (`away`: 0, inf of the others) with squared distances. */
FOR_EACH_PROCESSOR
static int64_t nearest_groups(const double *query, const double *centre, const double *away, int64_t G, double pitch,
                              double *restrict key, int64_t *group, double *square) {
    keys_of(query, centre, G, pitch, key);
    int64_t own = nearest_of(key, G, pitch, square);
    for (int64_t g = 0; g < G; g++) key[g] += away[g];
    for (int k = 0; k < 3; k++) {
        group[k] = nearest_of(key, G, pitch, square + k);
        if (group[k] < 0) group[k] = group[0]; /* there is none: it will weigh nothing */
        else key[group[k]] = INFINITY;
    }
    return own;
}

/* The weights of three groups at squared distances, nearest first, and the features of a point. */
static void heard_of(const double *query, const double *centre, int64_t G, const int64_t *group, const double *square,
                     int observed, float *weight, float *feature) {
    double pull[3], share[3];
    for (int k = 0; k < 3; k++) pull[k] = 1.0 / (square[k] + NEARBY);
    double total = pull[0] + pull[1] + pull[2], far = sqrt(square[0]);
    for (int k = 1; k < 3; k++) share[k] = rint(pull[k] / total * 4096.0);
    share[0] = 4096.0 - share[1] - share[2];
    for (int k = 0; k < 3; k++) {
        double apart = query[k] - centre[k * G + group[0]];
        apart = apart < -OFFSET_MAX ? -OFFSET_MAX : apart > OFFSET_MAX ? OFFSET_MAX : apart;
        weight[k] = (float)share[k];
        feature[k] = (float)floor(query[k] * 0.25 + 0.5);
        feature[3 + k] = (float)floor(apart * 0.25 + 0.5);
    }
    feature[6] = (float)rint(far / (far + DISTANCE_HALF) * 2048.0);
    feature[7] = observed ? 2048.0f : 0.0f;
}

/* Of the parts [n] that are a scene's own: the panels [first, last) that hold them. */
static void own_panels(const uint8_t *own, int64_t n, int64_t *first, int64_t *last) {
    *first = n, *last = 0;
    for (int64_t k = 0; k < n; k++)
        if (own[k]) *first = k < *first ? k : *first, *last = k + 1;
    *first = *first < *last ? *first / LANES * LANES : 0;
    *last = up_to_lanes(*last);
}

FOR_EACH_PROCESSOR
static void to_context(const float *x, int64_t h, float *restrict out) {
    for (int64_t i = 0; i < h; i++) {
        float low = floored_of(x[i]);
        low = low < -2047.0f ? -2047.0f : low;
        out[i] = low > 2047.0f ? 2047.0f : low;
    }
}

/* What one scene's groups have to say; contexts [G, h] are made when a point first asks for them. */
typedef struct {
    int64_t G, h, H;
    const float *token, *around, *chunk, *base;
    const int8_t *first, *second;
    const uint8_t *visited;
    float *context;
    uint8_t *made;
} Groups;

/* The contexts of n groups, no matter how often one is named; `room` is for 2 POINTS rows of H. */
static void make_contexts(const Groups *scene, const Map *map, const int64_t *group, int64_t n, float *room) {
    float *x = room, *said = room + POINTS * scene->H;
    int64_t number[POINTS], some = 0, h = scene->h;
    for (int64_t i = 0; i < n; i++) {
        int64_t g = group[i];
        if (!scene->made[g]) {
            int64_t own = scene->visited[scene->first[g]] || scene->second[g] < 0 ? scene->first[g] : scene->second[g];
            context_input(scene->token + g * h, scene->around + g * h, scene->chunk + own * h, scene->base, h,
                          x + some * scene->H);
            scene->made[g] = 1, number[some++] = g;
        }
        if (some == POINTS || (some && i == n - 1)) {
            through(map, x, scene->H, some, AS_IT_IS, said, scene->H);
            while (some--) to_context(said + some * scene->H, h, scene->context + number[some] * h);
            some = 0;
        }
    }
}

/* part_points(queries f8 [b, q, 3], rows i8 [b]; of n scenes: centres f8 [n, 3, G], seen b1 [n, G], first i1, second i1
               [n, G], visited b1 [n, M], token f4, around f4 [n, G, h], chunk f4 [n, M, h]; base f4 [b, h], table f4
               [b, h], said f8 [b, parts], own b1 [b, parts], weights f4 (context, its bias, position, hidden, its bias,
               offset), bias f8 [parts], out f8 [b, R, C], n, b, q, G, M, h, parts, R, C, never): out[:, :q, :parts] */
static PyObject *part_points(PyObject *self, PyObject *args) {
    Py_buffer in[16], out;
    Py_ssize_t n, b, q, G, M, h, parts, R, C;
    double never;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*y*y*y*y*y*y*y*y*w*nnnnnnnnnd", in, in + 1, in + 2, in + 3, in + 4, in + 5,
                          in + 6, in + 7, in + 8, in + 9, in + 10, in + 11, in + 12, in + 13, in + 14, in + 15, &out, &n, &b,
                          &q, &G, &M, &h, &parts, &R, &C, &never))
        return NULL;
    int64_t H = up_to_lanes(h), N = up_to_lanes(parts);
    int fits = in[0].len == 24 * b * q && in[1].len == 8 * b && in[2].len == 24 * n * G && in[3].len == n * G &&
               in[4].len == n * G && in[5].len == n * G && in[6].len == n * M && in[7].len == 4 * n * G * h &&
               in[8].len == in[7].len && in[9].len == 4 * n * M * h && in[10].len == 4 * b * h && in[11].len == 4 * b * h &&
               in[12].len == 8 * b * parts && in[13].len == b * parts && in[15].len == 8 * parts && G >= 1 &&
               in[14].len == 4 * (h * H + H + N_FEATURE * H + h * H + H + h * N) && out.len == 8 * b * R * C && q <= R &&
               parts <= C;
    int64_t n_room = 4 * G + POINTS * (N_FEATURE + 5 * H + N) + G * h;
    float *room = fits ? malloc((size_t)n_room * sizeof *room + (size_t)G) : NULL;
    int within = room != NULL;
    if (room) {
        const float *at = in[14].buf, *rest = room + 4 * G;
        Map context = {h, H, NULL, NULL}, position = {N_FEATURE, H, NULL, NULL}, hidden = {h, H, NULL, NULL};
        context.weight = take(&at, h * H);
        context.bias = take(&at, H);
        position.weight = take(&at, N_FEATURE * H);
        hidden.weight = take(&at, h * H);
        hidden.bias = take(&at, H);
        double *key = (double *)room, *away = key + G, pitch = pitch_of(G);
        float *feature = (float *)take(&rest, POINTS * N_FEATURE), *x = (float *)take(&rest, POINTS * H);
        float *placed = (float *)take(&rest, POINTS * H), *y = (float *)take(&rest, POINTS * H);
        float *told = (float *)take(&rest, POINTS * N), *spare = (float *)take(&rest, 2 * POINTS * H);
        Groups scene = {.G = G, .h = h, .H = H, .context = (float *)take(&rest, G * h), .made = (uint8_t *)rest};
        for (int64_t i = 0; within && i < b; i++) {
            int64_t s = ((const int64_t *)in[1].buf)[i], first, last;
            if (!(within = s >= 0 && s < n)) break;
            const double *query = (const double *)in[0].buf + 3 * i * q, *centre = (const double *)in[2].buf + 3 * s * G;
            const double *said = (const double *)in[12].buf + i * parts, *bias = in[15].buf;
            const uint8_t *seen = (const uint8_t *)in[3].buf + s * G, *own = (const uint8_t *)in[13].buf + i * parts;
            scene.first = (const int8_t *)in[4].buf + s * G, scene.second = (const int8_t *)in[5].buf + s * G;
            scene.visited = (const uint8_t *)in[6].buf + s * M, scene.token = (const float *)in[7].buf + s * G * h;
            scene.around = (const float *)in[8].buf + s * G * h, scene.chunk = (const float *)in[9].buf + s * M * h;
            scene.base = (const float *)in[10].buf + i * h;
            memset(scene.made, 0, (size_t)G);
            for (int64_t g = 0; g < G; g++) {
                away[g] = seen[g] ? 0.0 : INFINITY;
                within &= scene.first[g] >= 0 && scene.first[g] < M && scene.second[g] < M;
            }
            if (!within) break;
            own_panels(own, parts, &first, &last);
            Map offset = {h, last - first, at + first * h, NULL};
            for (int64_t start = 0, some; start < q; start += some, query += 3 * some) {
                int64_t group[POINTS][3];
                float weight[POINTS][3];
                some = q - start < POINTS ? q - start : POINTS;
                for (int64_t j = 0; j < some; j++) {
                    double square[3];
                    int64_t nearest = nearest_groups(query + 3 * j, centre, away, G, pitch, key, group[j], square);
                    within = nearest >= 0 && group[j][0] >= 0;
                    if (!within) break;
                    heard_of(query + 3 * j, centre, G, group[j], square, seen[nearest], weight[j], feature + j * N_FEATURE);
                }
                if (!within) break;
                make_contexts(&scene, &context, group[0], 3 * some, spare);
                through(&position, feature, N_FEATURE, some, AS_IT_IS, placed, H);
                for (int64_t j = 0; j < some; j++) {
                    const float *near[3];
                    for (int k = 0; k < 3; k++) near[k] = scene.context + group[j][k] * h;
                    point_input(near, weight[j], placed + j * H, (const float *)in[11].buf + i * h, h, x + j * H);
                }
                through(&hidden, x, H, some, TO_BYTE, y, H);
                through(&offset, y, H, some, AS_IT_IS, told + first, N);
                for (int64_t j = 0; j < some; j++) {
                    double *to = (double *)out.buf + (i * R + start + j) * C;
                    for (int64_t k = 0; k < parts; k++) to[k] = never;
                    for (int64_t k = first; k < last && k < parts; k++)
                        if (own[k]) to[k] = (double)told[j * N + k] + bias[k] + said[k];
                }
            }
        }
    }
    int done = room != NULL;
    free(room);
    for (int i = 0; i < 16; i++) PyBuffer_Release(in + i);
    PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "part_points: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    if (!within) return PyErr_Format(PyExc_IndexError, "part_points: a scene, a chunk or a seen group is not there");
    Py_RETURN_NONE;
}

FOR_EACH_PROCESSOR
static void larger_of(float *restrict a, const float *restrict b, int64_t h) {
    for (int64_t i = 0; i < h; i++) a[i] = b[i] > a[i] ? b[i] : a[i];
}

FOR_EACH_PROCESSOR
static void to_bytes(const float *restrict x, const float *restrict bias, int64_t w, float *restrict out) {
    for (int64_t i = 0; i < w; i++) out[i] = byte_of(x[i] + bias[i]);
}

/* part_tokens(tokens f4 [n, G, w], bias f4 [w], known b1 [n, G], near i8 [n, G, k], weights f4 (own, spoken), done b1
               [n, G], token f4, spoken f4, around f4 [n, G, h], n, G, w, k, h): what groups that are known and not done
               give to contexts, and what others hear of them */
static PyObject *part_tokens(PyObject *self, PyObject *args) {
    Py_buffer in[5], out[4];
    Py_ssize_t n, G, w, k, h;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*w*w*w*w*nnnnn", in, in + 1, in + 2, in + 3, in + 4, out, out + 1, out + 2, out + 3,
                          &n, &G, &w, &k, &h))
        return NULL;
    int64_t H = up_to_lanes(h), size = 4 * n * G * h, some = 0, number[POINTS];
    int fits = in[0].len == 4 * n * G * w && in[1].len == 4 * w && in[2].len == n * G && in[3].len == 8 * n * G * k &&
               in[4].len == 8 * w * H && out[0].len == n * G && out[1].len == size && out[2].len == size && out[3].len == size;
    float *room = fits ? malloc((size_t)(POINTS * (w + H)) * sizeof *room) : NULL, *said = room + POINTS * w;
    uint8_t *new = fits ? calloc((size_t)(n * G + 1), 1) : NULL, *done = out[0].buf;
    int within = room && new;
    for (int64_t i = 0; room && new && i < n * G; i++) {
        if (((const uint8_t *)in[2].buf)[i] && !done[i]) {
            to_bytes((const float *)in[0].buf + i * w, in[1].buf, w, room + some * w);
            new[i] = done[i] = 1, number[some++] = i;
        }
        if (some < POINTS && i < n * G - 1) continue;
        for (int which = 0; some && which < 2; which++) {
            Map map = {w, H, (const float *)in[4].buf + which * w * H, NULL};
            through(&map, room, w, some, AS_IT_IS, said, H);
            for (int64_t j = 0; j < some; j++)
                memcpy((float *)out[1 + which].buf + number[j] * h, said + j * H, (size_t)h * sizeof *said);
        }
        some = 0;
    }
    for (int64_t s = 0; within && s < n; s++) {
        const int64_t *near = (const int64_t *)in[3].buf + s * G * k;
        if (!memchr(new + s * G, 1, (size_t)G)) continue;
        for (int64_t i = 0; within && i < G * k; i++) {
            within = near[i] >= 0 && near[i] < G;
            if (within && new[s * G + near[i]])
                larger_of((float *)out[3].buf + (s * G + i / k) * h, (const float *)out[2].buf + (s * G + near[i]) * h, h);
        }
    }
    int had = room && new;
    free(room), free(new);
    for (int i = 0; i < 5; i++) PyBuffer_Release(in + i);
    for (int i = 0; i < 4; i++) PyBuffer_Release(out + i);
    if (!fits) return PyErr_Format(PyExc_ValueError, "part_tokens: sizes do not fit");
    if (!had) return PyErr_NoMemory();
    if (!within) return PyErr_Format(PyExc_IndexError, "part_tokens: a neighbour is not there");
    Py_RETURN_NONE;
}

FOR_EACH_PROCESSOR
static void nearest_to(const double *centre, int64_t g, int64_t G, double pitch, double *restrict key, int64_t k,
                       int64_t *out) {
    double own[3] = {centre[g], centre[G + g], centre[2 * G + g]}, square;
    keys_of(own, centre, G, pitch, key);
    for (int64_t i = 0; i < k; i++) {
        out[i] = i ? nearest_of(key, G, pitch, &square) : g;
        if (out[i] >= 0) key[out[i]] = INFINITY;
    }
}

/* part_near(centres f8 [n, 3, G], near i8 [n, G, k], n, G, k): the k nearest groups of each, itself first */
static PyObject *part_near(PyObject *self, PyObject *args) {
    Py_buffer centres, near;
    Py_ssize_t n, G, k;
    if (!PyArg_ParseTuple(args, "y*w*nnn", &centres, &near, &n, &G, &k)) return NULL;
    int fits = centres.len == 24 * n * G && near.len == 8 * n * G * k && k >= 1 && k <= G;
    double *key = fits ? malloc((size_t)G * sizeof *key) : NULL;
    for (int64_t i = 0; key && i < n * G; i++)
        nearest_to((const double *)centres.buf + i / G * 3 * G, i % G, G, pitch_of(G), key, k, (int64_t *)near.buf + i * k);
    int done = key != NULL;
    free(key);
    PyBuffer_Release(&centres), PyBuffer_Release(&near);
    if (!fits) return PyErr_Format(PyExc_ValueError, "part_near: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* The largest of n numbers, by their bits in the order of whole numbers; whether all are finite. */
FOR_EACH_PROCESSOR
static int largest_of(const double *x, int64_t n, double *out) {
    const Bits *bits = (const Bits *)x;
    int64_t best = INT64_MIN, farthest = 0;
    for (int64_t c = 0; c < n; c++) {
        int64_t size = bits[c] & INT64_MAX, order = bits[c] < 0 ? -size : size;
        best = order > best ? order : best, farthest = size > farthest ? size : farthest;
    }
    best = best < 0 ? -best | INT64_MIN : best;
    memcpy(out, &best, sizeof best);
    return farthest < INT64_C(0x7ff0000000000000);
}

/* margins(logits f8 [n, C], out f8 [n], n, C): the twin is grid.softmax.margin; an exponential below 2^-41 counts 0 */
static PyObject *margins(PyObject *self, PyObject *args) {
    Py_buffer logits, out;
    Py_ssize_t n, C;
    if (!PyArg_ParseTuple(args, "y*w*nn", &logits, &out, &n, &C)) return NULL;
    int fits = logits.len == 8 * n * C && out.len == 8 * n && C >= 2, finite = 1;
    double *near = fits ? malloc((size_t)C * sizeof *near) : NULL; /* logits that count, less the best */
    for (int64_t r = 0; near && finite && r < n; r++) {
        const double *x = (const double *)logits.buf + r * C;
        double best, second = -60.0, sum = 0.0;
        int64_t count = 0, leaders = 0;
        finite = largest_of(x, C, &best);
        for (int64_t c = 0; c < C; c++) near[count] = x[c] - best, count += x[c] - best > -40.0;
        for (int64_t c = 0; c < count; c++) {
            sum += rint(exp_of(near[c]) * 1099511627776.0);
            if (near[c] == 0.0) leaders++;
            else if (near[c] > second) second = near[c];
        }
        if (leaders > 1) second = 0.0;
        double runner_up = rint(exp_of(second) * 1099511627776.0) * (1.0 / 1099511627776.0);
        double gap = (1.0 - runner_up) / (sum * (1.0 / 1099511627776.0));
        ((double *)out.buf)[r] = rint(gap * 1073741824.0) * (1.0 / 1073741824.0);
    }
    int done = near != NULL;
    free(near);
    PyBuffer_Release(&logits), PyBuffer_Release(&out);
    if (!fits) return PyErr_Format(PyExc_ValueError, "margins: sizes do not fit");
    if (!done) return PyErr_NoMemory();
    return PyBool_FromLong(finite);
}

static PyMethodDef methods[] = {
    {"alone", alone, METH_VARARGS, NULL},
    {"exp", exp_py, METH_VARARGS, NULL},
    {"tanh", tanh_py, METH_VARARGS, NULL},
    {"normalise_int", normalise_int, METH_VARARGS, NULL},
    {"layer", layer, METH_VARARGS, NULL},
    {"step", step, METH_VARARGS, NULL},
    {"to_grid", to_grid, METH_VARARGS, NULL},
    {"statistics", statistics, METH_VARARGS, NULL},
    {"groups", groups, METH_VARARGS, NULL},
    {"descriptors", descriptors, METH_VARARGS, NULL},
    {"embed", embed, METH_VARARGS, NULL},
    {"part_points", part_points, METH_VARARGS, NULL},
    {"part_tokens", part_tokens, METH_VARARGS, NULL},
    {"part_near", part_near, METH_VARARGS, NULL},
    {"margins", margins, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__kernels(void) {
    PyObject *made = PyModule_Create(&module);
    choose_processor();
    if (made && PyModule_AddIntConstant(made, "VERSION", VERSION) < 0) Py_CLEAR(made);
    return made;
}
