/* The encoder of a chunk as docs/integers.md writes it down: int8 weights, int32 sums, shifts.
   Real numbers (double) only in the moments of a group; compile with -ffp-contract=off. */

#include <math.h>
#include <stdint.h>

enum { MAX_WIDTH = 512, MAX_POINTS = 256, N_MOMENTS = 30 };

typedef struct {
    int32_t n_out, n_in;
    const int8_t *weight;  /* [out, in] */
    const int32_t *bias;   /* [out]; NULL: none */
    const int8_t *shift;   /* [out] */
} Map;

typedef struct {
    Map edge_in, edge_out, token_in, geometry, token_out, chunk;  /* chunk.n_out = 0: there is none */
} Encoder;

/* x / 2^shift, rounded, halves up; C leaves >> of a negative number to the compiler, ~ makes it none */
static int32_t shifted(int32_t x, int shift) {
    if (shift > 0) x += (int32_t)1 << (shift - 1);
    return x >= 0 ? x >> shift : ~(~x >> shift);
}

static int32_t clamp(int32_t x, int32_t low, int32_t high) {
    return x < low ? low : x > high ? high : x;
}

static int32_t sum(const Map *map, int row, const int32_t *x) {
    int32_t total = map->bias ? map->bias[row] : 0;
    for (int i = 0; i < map->n_in; i++) total += map->weight[row * map->n_in + i] * x[i];
    return total;
}

static void mapped(const Map *map, const int32_t *x, int32_t low, int32_t high, int32_t *out) {
    for (int row = 0; row < map->n_out; row++) out[row] = clamp(shifted(sum(map, row, x), map->shift[row]), low, high);
}

static void keep_larger(int32_t *best, const int32_t *x, int n, int first) {
    for (int i = 0; i < n; i++) if (first || x[i] > best[i]) best[i] = x[i];
}

static int32_t steps(double x) {
    return clamp((int32_t)rint(x), -2047, 2047);  /* rint: halves to even */
}

static void moments(int32_t offset[][3], int k, int32_t *out) {
    static const int pair[6][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {0, 2}, {1, 2}};
    static const int share[3] = {4, 2, 1};
    for (int part = 0; part < 3; part++, out += 10) {
        int n = k / share[part] > 1 ? k / share[part] : 1;
        int64_t total[3] = {0, 0, 0}, second[6], trace;
        for (int p = 0; p < n; p++) for (int i = 0; i < 3; i++) total[i] += offset[p][i];
        for (int e = 0; e < 6; e++) {
            int i = pair[e][0], j = pair[e][1];
            int64_t squares = 0;
            for (int p = 0; p < n; p++) squares += (int64_t)offset[p][i] * offset[p][j];
            second[e] = n * squares - total[i] * total[j];
        }
        trace = second[0] + second[1] + second[2];
        if (trace < 1) trace = 1;
        double root = sqrt((double)trace);
        for (int i = 0; i < 3; i++) out[i] = steps((double)total[i] / root * 512.0);
        for (int e = 0; e < 6; e++) out[3 + e] = steps((double)second[e] / (double)trace * 2048.0);
        out[9] = steps(root / (n * 16384.0) * 2048.0);
    }
}

static void token(const Encoder *net, const int16_t (*points)[3], const uint16_t *members, int k, int32_t *out) {
    int32_t offset[MAX_POINTS][3], edge[6], hidden[MAX_WIDTH], edge_out[MAX_WIDTH], grouped[MAX_WIDTH];
    int32_t where[3 + N_MOMENTS], inner[MAX_WIDTH];
    const int16_t *centre = points[members[0]];
    for (int i = 0; i < 3; i++) where[i] = edge[3 + i] = shifted(centre[i], 2);
    for (int p = 0; p < k; p++) {
        for (int i = 0; i < 3; i++) edge[i] = offset[p][i] = points[members[p]][i] - centre[i];
        mapped(&net->edge_in, edge, 0, 255, hidden);
        mapped(&net->edge_out, hidden, 0, 255, edge_out);
        keep_larger(grouped, edge_out, net->edge_out.n_out, p == 0);
    }
    if (net->geometry.n_in > 3) moments(offset, k, where + 3);
    for (int row = 0; row < net->token_in.n_out; row++) {
        int32_t told = shifted(sum(&net->geometry, row, where), net->geometry.shift[row]);
        inner[row] = clamp(shifted(sum(&net->token_in, row, grouped) + told, net->token_in.shift[row]), 0, 255);
    }
    mapped(&net->token_out, inner, net->chunk.n_out ? 0 : -127, net->chunk.n_out ? 255 : 127, out);
}

/* The embedding of one chunk: its groups' numbers, the cloud's points and the points of each group. */
void embedding(const Encoder *net, const int16_t (*points)[3], const uint16_t *members, int k,
               const int32_t *groups, int n_groups, int32_t *out) {
    int32_t one[MAX_WIDTH], pooled[MAX_WIDTH];
    int width = net->token_out.n_out;
    for (int g = 0; g < n_groups; g++) {
        token(net, points, members + groups[g] * k, k, one);
        keep_larger(pooled, one, width, g == 0);
    }
    if (net->chunk.n_out) mapped(&net->chunk, pooled, 0, 255, out);
    else keep_larger(out, pooled, width, 1);
}
