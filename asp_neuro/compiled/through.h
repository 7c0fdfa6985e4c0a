/* Rows through a map, and what is added before one, for one kind of processor; kernels.c includes this once for each, with

       NAME(x)    x with the processor's name        TARGET    what the compiler is told about it
       BYTES      of a vector                        ROWS, PANELS    whose sums are held in registers at once */

typedef float NAME(vec) __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef int32_t NAME(ivec) __attribute__((vector_size(BYTES), aligned(4), may_alias));
#define VEC NAME(vec)
#define IVEC NAME(ivec)
#define EACH (BYTES / 4)     /* numbers in a vector */
#define PARTS (LANES / EACH) /* vectors in a row of a panel */

TARGET static inline __attribute__((always_inline)) VEC NAME(larger)(VEC a, VEC b) {
    IVEC is = a > b;
    return (VEC)(((IVEC)a & is) | ((IVEC)b & ~is));
}

TARGET static inline __attribute__((always_inline)) VEC NAME(floored)(VEC x) {
    VEC whole = __builtin_convertvector(__builtin_convertvector(x, IVEC), VEC); /* toward zero */
    return whole + __builtin_convertvector((IVEC)(whole > x), VEC);            /* a lane that holds is -1 */
}

TARGET static inline __attribute__((always_inline)) VEC NAME(to_byte)(VEC x) {
    VEC least = (VEC){0} - 255.0f;
    return NAME(floored)(-NAME(larger)(-NAME(larger)(x, (VEC){0}), least));
}

/* The panels from column c on, `panels` of them at once: a number that is read serves them all. */
TARGET static inline __attribute__((always_inline)) void NAME(through_panels)(const Map *map, const float *x,
                                                                              int64_t stride, int64_t n, int then, float *out,
                                                                              int64_t out_stride, int64_t c, const int panels) {
    const float *panel = map->weight + c * map->n_in;
    VEC bias[PANELS * PARTS], most[PANELS * PARTS];
    for (int v = 0; v < panels * PARTS; v++) {
        bias[v] = map->bias ? *(const VEC *)(map->bias + c + v * EACH) : (VEC){0};
        most[v] = (VEC){0} - 1e30f;
    }
    for (int64_t r = 0; r < n; r += ROWS) {
        const float *row[ROWS];
        VEC sum[ROWS][PANELS * PARTS];
        for (int j = 0; j < ROWS; j++) {
            row[j] = x + (r + j < n ? r + j : n - 1) * stride;
            for (int v = 0; v < panels * PARTS; v++) sum[j][v] = (VEC){0};
        }
        for (int64_t i = 0; i < map->n_in; i++)
            for (int v = 0; v < panels * PARTS; v++) {
                VEC weight = *(const VEC *)(panel + (v / PARTS * map->n_in + i) * LANES + v % PARTS * EACH);
                for (int j = 0; j < ROWS; j++) sum[j][v] += row[j][i] * weight;
            }
        for (int j = 0; j < ROWS; j++)
            for (int v = 0; v < panels * PARTS; v++) {
                VEC *to = (VEC *)(out + (r + j) * out_stride + c + v * EACH);
                if (then == LARGEST) most[v] = NAME(larger)(most[v], sum[j][v]);
                else if (r + j < n && then == TO_BYTE) *to = NAME(to_byte)(sum[j][v] + bias[v]);
                else if (r + j < n) *to = sum[j][v] + bias[v];
            }
    }
    for (int v = 0; then == LARGEST && v < panels * PARTS; v++)
        *(VEC *)(out + c + v * EACH) = NAME(to_byte)(most[v] + bias[v]);
}

TARGET static void NAME(through)(const Map *map, const float *x, int64_t stride, int64_t n, int then, float *out,
                                 int64_t out_stride) {
    int64_t c = 0;
    for (; c + PANELS * LANES <= map->width; c += PANELS * LANES)
        NAME(through_panels)(map, x, stride, n, then, out, out_stride, c, PANELS);
    for (; c < map->width; c += LANES) NAME(through_panels)(map, x, stride, n, then, out, out_stride, c, 1);
}

/* x = what is heard of three contexts, weighted, + placed + table, each rounded, in bytes: [h] */
TARGET static void NAME(point_input)(const float *const *context, const float *weight, const float *placed,
                                     const float *table, int64_t h, float *out) {
    int64_t i = 0;
    for (; i + EACH <= h; i += EACH) {
        VEC told = *(const VEC *)(context[0] + i) * weight[0] + *(const VEC *)(context[1] + i) * weight[1] +
                   *(const VEC *)(context[2] + i) * weight[2];
        VEC place = NAME(floored)(*(const VEC *)(placed + i) + *(const VEC *)(table + i));
        *(VEC *)(out + i) = NAME(to_byte)((NAME(floored)(told * (1.0f / 4096.0f) + 0.5f) + place) * 0.125f + 0.5f);
    }
    for (; i < h; i++) {
        float told = context[0][i] * weight[0] + context[1][i] * weight[1] + context[2][i] * weight[2];
        out[i] = byte_of((floored_of(told * (1.0f / 4096.0f) + 0.5f) + floored_of(placed[i] + table[i])) * 0.125f + 0.5f);
    }
}

/* What a group, its neighbours, its chunk and all that was seen say, in bytes: [h] */
TARGET static void NAME(context_input)(const float *token, const float *around, const float *chunk, const float *base,
                                       int64_t h, float *out) {
    int64_t i = 0;
    for (; i + EACH <= h; i += EACH)
        *(VEC *)(out + i) = NAME(to_byte)(*(const VEC *)(token + i) + *(const VEC *)(around + i) +
                                          *(const VEC *)(chunk + i) + *(const VEC *)(base + i));
    for (; i < h; i++) out[i] = byte_of(token[i] + around[i] + chunk[i] + base[i]);
}

#undef NAME
#undef TARGET
#undef BYTES
#undef ROWS
#undef PANELS
#undef VEC
#undef IVEC
#undef EACH
#undef PARTS
