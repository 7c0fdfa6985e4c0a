/* Rows through a map, for one kind of processor; kernels.c includes this once for each, with

       NAME(x)    x with the processor's name        TARGET    what the compiler is told about it
       BYTES      of a vector                        ROWS      that are held in registers at once */

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

TARGET static void NAME(through)(const Map *map, const float *x, int64_t stride, int64_t n, int then, float *out,
                                 int64_t out_stride) {
    for (int64_t c = 0; c < map->width; c += LANES) {
        const float *panel = map->weight + c * map->n_in;
        VEC bias[PARTS], most[PARTS];
        for (int v = 0; v < PARTS; v++) {
            bias[v] = map->bias ? *(const VEC *)(map->bias + c + v * EACH) : (VEC){0};
            most[v] = (VEC){0} - 1e30f;
        }
        for (int64_t r = 0; r < n; r += ROWS) {
            const float *row[ROWS];
            VEC sum[ROWS][PARTS];
            for (int j = 0; j < ROWS; j++) {
                row[j] = x + (r + j < n ? r + j : n - 1) * stride;
                for (int v = 0; v < PARTS; v++) sum[j][v] = (VEC){0};
            }
            for (int64_t i = 0; i < map->n_in; i++) {
                const VEC *weight = (const VEC *)(panel + i * LANES);
                for (int j = 0; j < ROWS; j++)
                    for (int v = 0; v < PARTS; v++) sum[j][v] += row[j][i] * weight[v];
            }
            for (int j = 0; j < ROWS; j++)
                for (int v = 0; v < PARTS; v++) {
                    VEC *to = (VEC *)(out + (r + j) * out_stride + c + v * EACH);
                    if (then == LARGEST) most[v] = NAME(larger)(most[v], sum[j][v]);
                    else if (r + j < n && then == TO_BYTE) *to = NAME(to_byte)(sum[j][v] + bias[v]);
                    else if (r + j < n) *to = sum[j][v] + bias[v];
                }
        }
        for (int v = 0; then == LARGEST && v < PARTS; v++)
            *(VEC *)(out + c + v * EACH) = NAME(to_byte)(most[v] + bias[v]);
    }
}

#undef NAME
#undef TARGET
#undef BYTES
#undef ROWS
#undef VEC
#undef IVEC
#undef EACH
#undef PARTS
