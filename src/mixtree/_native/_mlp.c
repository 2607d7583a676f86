/* The compiled kernel of the built-in linear models and MLPs: one call trains a node, takes a gradient, or
 * predicts.
 *
 * A layer's weights (in x out) are kept in panels of two vectors' width: panel after panel, row after row, with
 * zeros up to a whole number of vectors. Every product then is one micro-kernel that reads one operand as
 * contiguous vectors, broadcasts the other, and keeps its tile of the result in registers. It ends with
 * result = keep * start + sum, so that biases, ReLU and, with delta scaled by -lr, the whole update of plain SGD,
 * W <- (1 - lr decay) W - lr gradient, come with it.
 *
 * This file includes itself once per number type and instruction set; the best set is chosen at run time, so a
 * library that was built on one machine runs on any machine of its architecture. NaN and infinity propagate
 * everywhere: a diverged model must look diverged.
 */
#ifndef REAL

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { TRAIN, GRADIENT, PREDICT };
enum { RELU, SIGMOID, TANH };
enum { CROSS_ENTROPY, SQUARED, ABSOLUTE, EXP_ABSOLUTE };
enum { SGD, MOMENTUM, ADAM };
enum { PLAIN, RECTIFIED, GATED };
enum { MAX_LAYERS = 64, ALIGNMENT = 64, BLOCK = 60, AHEAD = 8 };

/* Mirrored field by field in mlp_native.py. Reals are float, or double if wide. */
typedef struct {
    int64_t task, wide, layers, activation, loss, optimizer, batch, steps, taken;
    double momentum, square_momentum, epsilon, decay, clip; /* clip 0: none */
    const int64_t *sizes;   /* layers + 1 widths */
    const int64_t *order;   /* steps x batch row numbers; to predict: batch row numbers */
    const double *lr;       /* one per step */
    const void *x;          /* rows x sizes[0]; sparse: the values */
    const int32_t *indptr;  /* sparse only, else NULL */
    const int32_t *indices; /* sparse only */
    const int64_t *labels;  /* class of every row */
    const void *targets;    /* target of every row of a regression */
    const void *weights;    /* weight of every row */
    void *parameters;       /* per layer: weights (in x out, row-major), biases; changed by training */
    void *first, *second;   /* moments, as the optimizer has them; changed by training */
    void *out;              /* the gradient, or predictions (batch x outputs) */
} mlp_task;

typedef struct {
    int64_t in, out, wide;         /* wide: out up to a whole number of vectors */
    int64_t rows, weights, biases; /* packed: rows of W (0 for a sparse layer) and where W and b start */
    int64_t flat;                  /* where W starts among the parameters; b follows */
} layer;

#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define N(name) JOIN(name, REAL, LEVEL)
#define KIND_float 1
#define KIND_double 2
#define KIND_(type) KIND_##type
#define KIND(type) KIND_(type)
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define UNROLL _Pragma("GCC unroll 16")
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (IVEC){__VA_ARGS__})
#endif

#define SELF "_mlp.c"
#define LEVEL plain
#define BYTES 16
#if defined(__aarch64__)
#define ROWS 12
#else
#define ROWS 6
#endif
#define REAL float
#include SELF
#define REAL double
#include SELF
#undef LEVEL
#undef BYTES
#undef ROWS

#if defined(__x86_64__)
#define LEVEL avx2
#define BYTES 32
#define ROWS 6
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define REAL float
#include SELF
#define REAL double
#include SELF
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef LEVEL
#undef BYTES
#undef ROWS

#define LEVEL avx512
#define BYTES 64
#define ROWS 12
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,fma")
#endif
#define REAL float
#include SELF
#define REAL double
#include SELF
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

typedef int64_t (*runner)(const mlp_task *, void *);

#if defined(__x86_64__)
static const runner RUNNERS[3][2] = {
    {run_float_plain, run_double_plain}, {run_float_avx2, run_double_avx2}, {run_float_avx512, run_double_avx512}};
#else
static const runner RUNNERS[1][2] = {{run_float_plain, run_double_plain}};
#endif

#define EXPORT __attribute__((visibility("default")))

/* The best instruction set of this machine: 0 plain, 1 AVX2, 2 AVX-512. */
EXPORT int mlp_best_level(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
    return 0;
}

/* Lets the binding see that it and the library speak of the same struct. */
EXPORT int64_t mlp_task_size(void) { return (int64_t)sizeof(mlp_task); }

/* How many bytes of working memory the task needs; where some are given, does the task in them. */
EXPORT int64_t mlp_run(const mlp_task *task, int level, void *memory) {
    return RUNNERS[level][task->wide != 0](task, memory);
}

#else /* ---------------------------------------------------------- once per number type and instruction set */

#if KIND(REAL) == KIND_float
#define INT int32_t
#define SIZE 4
#define MAGIC 12582912.0f /* 1.5 * 2^23: adding it rounds to a whole number, left in the low bits */
#define MANTISSA 23
#define BIAS 127
#define LOWEST -87.0f
#define HIGHEST 88.0f
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
#define DEGREE 7
#else
#define INT int64_t
#define SIZE 8
#define MAGIC 6755399441055744.0
#define MANTISSA 52
#define BIAS 1023
#define LOWEST -708.0
#define HIGHEST 709.0
#define LN2_HIGH 6.93145751953125e-1
#define LN2_LOW 1.42860682030941723212e-6
#define DEGREE 13
#endif
#define LANES (BYTES / SIZE)
#if LANES == 16
#define ZIP_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define ZIP_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#elif LANES == 4
#define ZIP_LOW 0, 4, 1, 5
#define ZIP_HIGH 2, 6, 3, 7
#else
#define ZIP_LOW 0, 2
#define ZIP_HIGH 1, 3
#endif
#define VEC N(vector)
#define IVEC N(integers)

typedef REAL VEC __attribute__((vector_size(BYTES), may_alias));
typedef INT IVEC __attribute__((vector_size(BYTES), may_alias));

/* ------------------------------------------------------------------------------------------------ products */

typedef struct {
    int64_t depth;
    const REAL *a; /* a(row, p) = a[row * a_row + p * a_step] is broadcast */
    int64_t a_row, a_step;
    const REAL *b; /* vectors of b at b + p * b_step */
    int64_t b_step;
    REAL *c; /* c = keep * start + sum over p of a(row, p) b(p) */
    int64_t c_row;
    REAL keep;
    const REAL *start;
    int64_t start_row;
    int ending;       /* then, if RECTIFIED, max(c, 0); if GATED, 0 where the gate, laid out like c, is not above 0 */
    const REAL *gate;
} N(product);

INLINE void N(store)(const int rows, const int vectors, const int ending, const N(product) * q, int64_t first,
                     VEC (*sum)[2]) {
    UNROLL for (int i = 0; i < rows; i++) UNROLL for (int v = 0; v < vectors; v++) {
        const int64_t place = (first + i) * q->c_row + v * LANES;
        VEC c = q->keep * *(const VEC *)(q->start + (first + i) * q->start_row + v * LANES) + sum[i][v];
        if (ending == RECTIFIED) c = (VEC)((IVEC)c & ~(c < 0)); /* NaN stays NaN */
        if (ending == GATED) c = (VEC)((IVEC)c & (*(const VEC *)(q->gate + place) > 0));
        *(VEC *)(q->c + place) = c;
    }
}

INLINE void N(tile)(const int rows, const int vectors, const N(product) * q, int64_t first, const int64_t a_row,
                    const int64_t a_step) {
    VEC sum[ROWS][2];
    UNROLL for (int i = 0; i < rows; i++) {
        sum[i][0] = (VEC){0};
        sum[i][1] = (VEC){0};
    }
    const REAL *a = q->a + first * a_row, *b = q->b;
    const int64_t b_step = q->b_step;
    for (int64_t p = q->depth; p > 0; p--) {
        const VEC left = *(const VEC *)b, right = vectors == 2 ? ((const VEC *)b)[1] : (VEC){0};
        UNROLL for (int i = 0; i < rows; i++) {
            const VEC one = a[i * a_row] - (VEC){0};
            sum[i][0] += one * left;
            if (vectors == 2) sum[i][1] += one * right;
        }
        a += a_step;
        b += b_step;
    }
    if (q->ending == RECTIFIED) N(store)(rows, vectors, RECTIFIED, q, first, sum);
    else if (q->ending == GATED) N(store)(rows, vectors, GATED, q, first, sum);
    else N(store)(rows, vectors, PLAIN, q, first, sum);
}

/* All rows of one panel, cut into tiles of nearly equal height. */
INLINE void N(rows)(const N(product) * q, int64_t m, const int vectors, const int64_t a_row, const int64_t a_step) {
    int64_t tiles = (m + ROWS - 1) / ROWS;
    for (int64_t first = 0, height; first < m; first += height, tiles--) {
        height = (m - first + tiles - 1) / tiles;
        switch (height) {
#define CASE(n) \
    case n: N(tile)(n, vectors, q, first, a_row, a_step); break;
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if ROWS == 12
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
#undef CASE
        }
    }
}

APART void N(across)(const N(product) * q, int64_t m, int64_t width) {
    if (width > LANES) N(rows)(q, m, 2, q->a_row, 1);
    else N(rows)(q, m, 1, q->a_row, 1);
}

APART void N(down)(const N(product) * q, int64_t m, int64_t width) {
    if (width > LANES) N(rows)(q, m, 2, 1, q->a_step);
    else N(rows)(q, m, 1, 1, q->a_step);
}

INLINE int64_t N(padded)(int64_t columns) { return (columns + LANES - 1) / LANES * LANES; }

INLINE int64_t N(width)(int64_t columns, int64_t first) {
    return columns - first > LANES ? 2 * LANES : LANES;
}

/* c (m x columns) = biases + a (m x depth) times panels (depth x columns). */
static void N(times_panels)(const REAL *a, int64_t a_row, int64_t m, int64_t depth, const REAL *panels,
                            int64_t columns, const REAL *biases, int ending, REAL *c) {
    for (int64_t j = 0, width; j < columns; j += width) {
        width = N(width)(columns, j);
        const N(product) q = {.depth = depth, .a = a, .a_row = a_row, .b = panels + depth * j, .b_step = width,
                              .c = c + j, .c_row = columns, .keep = 1, .start = biases + j, .ending = ending};
        N(across)(&q, m, width);
    }
}

/* panels (m x columns) = keep * panels + a' (m x depth) times b (depth x columns). */
static void N(into_panels)(const REAL *a, int64_t a_step, int64_t m, int64_t depth, const REAL *b, int64_t columns,
                           REAL keep, REAL *panels) {
    for (int64_t j = 0, width; j < columns; j += width) {
        width = N(width)(columns, j);
        REAL *c = panels + m * j;
        const N(product) q = {.depth = depth, .a = a, .a_step = a_step, .b = b + j, .b_step = columns,
                              .c = c, .c_row = width, .keep = keep, .start = c, .start_row = width};
        N(down)(&q, m, width);
    }
}

/* A square of LANES x LANES numbers, turned: every stage zips its first half with its second. */
INLINE void N(turn)(VEC *both) {
    VEC square[2][LANES];
    UNROLL for (int i = 0; i < LANES; i++) square[0][i] = both[i];
    int now = 0;
    UNROLL for (int stage = 1; stage < LANES; stage *= 2, now = !now) UNROLL for (int i = 0; i < LANES / 2; i++) {
        const VEC upper = square[now][i], lower = square[now][i + LANES / 2];
        square[!now][2 * i] = SHUFFLE(upper, lower, ZIP_LOW);
        square[!now][2 * i + 1] = SHUFFLE(upper, lower, ZIP_HIGH);
    }
    UNROLL for (int i = 0; i < LANES; i++) both[i] = square[now][i];
}

/* Rows first ... first + height of panels (rows x columns) as one panel of the transpose, 0 for missing rows. */
static void N(transpose)(const REAL *panels, int64_t rows, int64_t columns, int64_t first, int64_t height, REAL *to) {
    const int64_t wide = N(padded)(columns);
    VEC square[LANES];
    for (int64_t j = 0; j < wide; j += LANES) {
        const int64_t panel = j / (2 * LANES) * (2 * LANES), width = N(width)(wide, panel);
        for (int64_t i = first; i < first + height; i += LANES) {
            const REAL *from = panels + rows * panel + i * width + (j - panel);
            for (int64_t k = 0; k < LANES; k++)
                square[k] = i + k < rows ? *(const VEC *)(from + k * width) : (VEC){0};
            N(turn)(square);
            for (int64_t k = 0; k < LANES && j + k < columns; k++)
                *(VEC *)(to + (j + k) * height + (i - first)) = square[k];
        }
    }
}

/* c (m x rows) = a (m x columns) times the transpose of panels (rows x columns), then gated if there is a gate. */
static void N(times_transposed)(const REAL *a, int64_t m, const REAL *panels, int64_t rows, int64_t columns,
                                const REAL *gate, const REAL *zeros, REAL *strip, REAL *c) {
    const int64_t tall = N(padded)(rows);
    for (int64_t i = 0, height; i < tall; i += height) {
        height = N(width)(tall, i);
        N(transpose)(panels, rows, columns, i, height, strip);
        const N(product) q = {.depth = columns, .a = a, .a_row = N(padded)(columns), .b = strip, .b_step = height,
                              .c = c + i, .c_row = tall, .start = zeros, .ending = gate ? GATED : PLAIN,
                              .gate = gate ? gate + i : NULL};
        N(across)(&q, m, height);
    }
}

/* ------------------------------------------------------------------------------- activations and the losses */

INLINE VEC N(choose)(IVEC condition, VEC yes, VEC no) {
    return (VEC)(((IVEC)yes & condition) | ((IVEC)no & ~condition));
}

/* e^x - 1, to the last bits also near 0: 2^n (e^r - 1) + (2^n - 1) with x = n ln 2 + r. */
INLINE VEC N(expm1)(VEC x) {
    x = N(choose)(x < LOWEST, LOWEST - (VEC){0}, x);
    x = N(choose)(x > HIGHEST, HIGHEST - (VEC){0}, x);
    const VEC shifted = x * (REAL)1.4426950408889634 + MAGIC;
    const VEC n = shifted - MAGIC;
    const VEC r = (x - n * LN2_HIGH) - n * LN2_LOW;
    VEC sum = (VEC){0};
    UNROLL for (int k = DEGREE; k > 0; k--) sum = (sum + 1) * (r * ((REAL)1 / (REAL)k));
    const VEC power = (VEC)(((IVEC)shifted << MANTISSA) + ((INT)BIAS << MANTISSA));
    return power * sum + (power - 1);
}

static void N(activate)(int64_t kind, REAL *values, int64_t count) {
    VEC *v = (VEC *)values, *end = (VEC *)(values + count);
    if (kind == RELU) for (; v < end; v++) *v = (VEC)((IVEC)*v & ~(*v < 0));
    else if (kind == SIGMOID) for (; v < end; v++) *v = 1 / (2 + N(expm1)(-*v));
    else for (; v < end; v++) {
        const VEC e = N(expm1)(2 * *v);
        *v = e / (e + 2);
    }
}

/* delta times the activation's slope, from the activation's own output; the products do it for ReLU. */
static void N(times_slope)(int64_t kind, const REAL *output, REAL *delta, int64_t count) {
    const VEC *h = (const VEC *)output;
    VEC *d = (VEC *)delta, *end = (VEC *)(delta + count);
    if (kind == SIGMOID) for (; d < end; d++, h++) *d *= *h * (1 - *h);
    else for (; d < end; d++, h++) *d *= 1 - *h * *h;
}

static void N(softmax)(REAL *logits, int64_t m, int64_t classes, int64_t wide) {
    for (REAL *row = logits; row < logits + m * wide; row += wide) {
        REAL top = row[0], sum = 0;
        for (int64_t c = 1; c < classes; c++) if (row[c] > top) top = row[c];
        for (int64_t c = 0; c < wide; c += LANES) *(VEC *)(row + c) = N(expm1)(*(VEC *)(row + c) - top) + 1;
        for (int64_t c = 0; c < classes; c++) sum += row[c];
        const REAL share = 1 / sum;
        for (int64_t c = 0; c < classes; c++) row[c] *= share;
        for (int64_t c = classes; c < wide; c++) row[c] = 0;
    }
}

INLINE REAL N(sign)(REAL d) { return d > 0 ? 1 : d < 0 ? -1 : d; /* NaN stays NaN */ }

/* Outputs become scale times the derivative of the batch's mean weighted loss by them. */
static void N(derive)(const mlp_task *t, const int64_t *rows, int64_t outputs, int64_t wide, REAL scale, REAL *delta) {
    const REAL *targets = t->targets, *weights = t->weights;
    if (t->loss == CROSS_ENTROPY) N(softmax)(delta, t->batch, outputs, wide);
    for (int64_t i = 0; i < t->batch; i++, delta += wide) {
        const REAL factor = scale * weights[rows[i]] / (REAL)t->batch;
        if (t->loss == CROSS_ENTROPY) {
            delta[t->labels[rows[i]]] -= 1;
            for (int64_t c = 0; c < outputs; c++) delta[c] *= factor;
            continue;
        }
        const REAL y = targets[rows[i]], away = delta[0] - y;
        if (t->loss == SQUARED) delta[0] = 2 * away * factor;
        else if (t->loss == ABSOLUTE) delta[0] = N(sign)(away) * factor;
        else {
            const REAL price = (REAL)exp((double)delta[0]);
            delta[0] = N(sign)(price - (REAL)exp((double)y)) * price * factor;
        }
        for (int64_t c = 1; c < wide; c++) delta[c] = 0;
    }
}

/* ---------------------------------------------------------------------------------------------- one step */

typedef struct {
    const mlp_task *t;
    layer layers[MAX_LAYERS];
    int64_t packed;      /* length of the packed parameters */
    int64_t sparse;      /* length of the weights of a sparse first layer, used where they lie; else 0 */
    int fused;           /* plain SGD: gradients go straight into the weights */
    REAL *w, *g, *m, *v; /* packed parameters, gradient, moments */
    REAL *wide_g;        /* gradient of a sparse first layer, if it is not applied at once */
    REAL *outputs[MAX_LAYERS + 1], *delta[2], *strip, *zeros;
} N(space);

INLINE void N(prefetch)(const REAL *row, int64_t width) {
    for (int64_t i = 0; i < width; i += ALIGNMENT / SIZE) __builtin_prefetch(row + i, 0, 0);
    __builtin_prefetch(row + width - 1, 0, 0);
}

static void N(gather)(N(space) * s, const int64_t *rows, int64_t m) {
    const int64_t width = s->t->sizes[0];
    const REAL *x = s->t->x;
    /* Every row is read once: fetched ahead, past the caches in which the model and its caller live. */
    for (int64_t i = -AHEAD; i < m; i++) {
        if (i + AHEAD < m) N(prefetch)(x + rows[i + AHEAD] * width, width);
        if (i >= 0) memcpy(s->outputs[0] + i * width, x + rows[i] * width, (size_t)width * sizeof(REAL));
    }
}

static void N(sparse_forward)(N(space) * s, const int64_t *rows, int64_t m) {
    const mlp_task *t = s->t;
    const layer *l = s->layers;
    const REAL *x = t->x, *w = t->parameters;
    for (int64_t i = 0; i < m; i++) {
        REAL *restrict sum = s->outputs[1] + i * l->wide;
        memcpy(sum, s->w + l->biases, (size_t)l->wide * sizeof(REAL));
        for (int64_t e = t->indptr[rows[i]]; e < t->indptr[rows[i] + 1]; e++) {
            const REAL *restrict row = w + t->indices[e] * l->out;
            for (int64_t c = 0; c < l->out; c++) sum[c] += x[e] * row[c];
        }
    }
}

static void N(sparse_update)(N(space) * s, const int64_t *rows, const REAL *delta, REAL *target) {
    const mlp_task *t = s->t;
    const layer *l = s->layers;
    const REAL *x = t->x;
    for (int64_t i = 0; i < t->batch; i++, delta += l->wide)
        for (int64_t e = t->indptr[rows[i]]; e < t->indptr[rows[i] + 1]; e++) {
            REAL *restrict row = target + t->indices[e] * l->out;
            const REAL *restrict d = delta;
            for (int64_t c = 0; c < l->out; c++) row[c] += x[e] * d[c];
        }
}

static void N(forward)(N(space) * s, const int64_t *rows, int64_t m) {
    const int64_t layers = s->t->layers, kind = s->t->activation;
    if (s->sparse) N(sparse_forward)(s, rows, m);
    else N(gather)(s, rows, m);
    for (int64_t i = 0; i < layers; i++) {
        const layer *l = s->layers + i;
        const int inner = i < layers - 1;
        if (i || !s->sparse)
            N(times_panels)(s->outputs[i], i ? l[-1].wide : l->in, m, l->in, s->w + l->weights, l->wide,
                            s->w + l->biases, inner && kind == RELU ? RECTIFIED : PLAIN, s->outputs[i + 1]);
        if (inner && (kind != RELU || (s->sparse && !i))) N(activate)(kind, s->outputs[i + 1], m * l->wide);
    }
}

/* With plain SGD delta comes multiplied by -lr, and parameters <- keep * parameters + gradient; else they become
 * the gradient. */
static void N(backward)(N(space) * s, const int64_t *rows, REAL keep) {
    const mlp_task *t = s->t;
    REAL *into = s->fused ? s->w : s->g, *delta = s->outputs[t->layers];
    for (int64_t i = t->layers - 1; i >= 0; i--) {
        const layer *l = s->layers + i;
        REAL *below = s->delta[i % 2];
        if (i > 0) {
            N(times_transposed)(delta, t->batch, s->w + l->weights, l->in, l->out,
                                t->activation == RELU ? s->outputs[i] : NULL, s->zeros, s->strip, below);
            if (t->activation != RELU) N(times_slope)(t->activation, s->outputs[i], below, t->batch * l[-1].wide);
        }
        if (i || !s->sparse)
            N(into_panels)(s->outputs[i], i ? l[-1].wide : l->in, l->in, t->batch, delta, l->wide, keep,
                           into + l->weights);
        else {
            REAL *wide = s->fused ? t->parameters : s->wide_g;
            if (keep != 1) for (int64_t k = 0; k < s->sparse; k++) wide[k] *= keep;
            N(sparse_update)(s, rows, delta, wide);
        }
        for (int64_t j = 0; j < l->wide; j += LANES) {
            VEC *bias = (VEC *)(into + l->biases + j), sum = keep * *bias;
            for (int64_t k = 0; k < t->batch; k++) sum += *(VEC *)(delta + k * l->wide + j);
            *bias = sum;
        }
        delta = below;
    }
}

static double N(squares)(const REAL *g, int64_t count) {
    double lanes[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int k = 0; k < 8; k++) lanes[k] += (double)g[i + k] * (double)g[i + k];
    for (; i < count; i++) lanes[0] += (double)g[i] * (double)g[i];
    return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

static void N(apply)(const mlp_task *t, int64_t step, REAL shrink, REAL *restrict w, const REAL *restrict g,
                     REAL *restrict m, REAL *restrict v, int64_t count) {
    const REAL decay = (REAL)t->decay, mu = (REAL)t->momentum, nu = (REAL)t->square_momentum;
    const double taken = (double)(t->taken + step + 1);
    const REAL lr = (REAL)(t->optimizer == ADAM ? t->lr[step] / (1 - pow(t->momentum, taken)) : t->lr[step]);
    const REAL grow = (REAL)(1 / sqrt(1 - pow(t->square_momentum, taken))), epsilon = (REAL)t->epsilon;
    const REAL new_m = (REAL)(1 - t->momentum), new_v = (REAL)(1 - t->square_momentum);
    if (t->optimizer == SGD)
        for (int64_t i = 0; i < count; i++) w[i] -= lr * (shrink * g[i] + decay * w[i]);
    else if (t->optimizer == MOMENTUM)
        for (int64_t i = 0; i < count; i++) {
            m[i] = mu * m[i] + (shrink * g[i] + decay * w[i]);
            w[i] -= lr * m[i];
        }
    else
        for (int64_t i = 0; i < count; i++) {
            const REAL d = shrink * g[i] + decay * w[i];
            m[i] = mu * m[i] + new_m * d;
            v[i] = nu * v[i] + new_v * (d * d);
            w[i] -= lr * m[i] / (grow * (REAL)sqrt(v[i]) + epsilon);
        }
}

static void N(optimize)(N(space) * s, int64_t step) {
    const mlp_task *t = s->t;
    REAL shrink = 1;
    if (t->clip > 0) {
        const double norm = sqrt(N(squares)(s->g, s->packed) + N(squares)(s->wide_g, s->sparse));
        const double ratio = t->clip / (norm + 1e-6);
        if (!(ratio >= 1)) shrink = (REAL)ratio;
    }
    N(apply)(t, step, shrink, s->w, s->g, s->m, s->v, s->packed);
    if (s->sparse) N(apply)(t, step, shrink, t->parameters, s->wide_g, t->first, t->second, s->sparse);
}

/* ---------------------------------------------------------------------------------------------- a whole node */

/* Between the parameters' own order and panels; a sparse layer's weights stay where they are. */
static void N(pack)(const N(space) * s, REAL *flat, REAL *packed, int unpack) {
    for (int64_t i = 0; i < s->t->layers; i++) {
        const layer *l = s->layers + i;
        for (int64_t j = 0, width; j < l->wide; j += width) {
            width = N(width)(l->wide, j);
            const size_t bytes = (size_t)(l->out - j < width ? l->out - j : width) * sizeof(REAL);
            for (int64_t k = 0; k <= l->rows; k++) {
                const int bias = k == l->rows;
                REAL *inside = packed + (bias ? l->biases + j : l->weights + l->rows * j + k * width);
                REAL *outside = flat + l->flat + (bias ? l->in : k) * l->out + j;
                memcpy(unpack ? outside : inside, unpack ? inside : outside, bytes);
            }
        }
    }
}

static REAL *N(piece)(uintptr_t *place, int64_t count) {
    REAL *start = (REAL *)*place;
    *place += (uintptr_t)((count * SIZE + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return start;
}

/* Lays out the working memory from an address on, and returns its end. What must start as 0 comes first, up to
 * where outputs[1] starts; everything else is written before it is read. */
static uintptr_t N(lay_out)(N(space) * s, uintptr_t place) {
    const mlp_task *t = s->t;
    const int64_t m = t->task == PREDICT ? BLOCK : t->batch;
    int64_t widest = 0;
    s->w = N(piece)(&place, s->packed);
    s->zeros = N(piece)(&place, 2 * LANES);
    if (t->task != PREDICT && !s->fused) {
        s->g = N(piece)(&place, s->packed);
        s->wide_g = N(piece)(&place, s->sparse);
        if (t->first) s->m = N(piece)(&place, s->packed);
        if (t->second) s->v = N(piece)(&place, s->packed);
    }
    for (int64_t i = 0; i < t->layers; i++) {
        if (s->layers[i].wide > widest) widest = s->layers[i].wide;
        s->outputs[i + 1] = N(piece)(&place, m * s->layers[i].wide);
    }
    if (!s->sparse) s->outputs[0] = N(piece)(&place, m * t->sizes[0]);
    if (t->task == PREDICT) return place;
    s->delta[0] = N(piece)(&place, m * widest);
    s->delta[1] = N(piece)(&place, m * widest);
    s->strip = N(piece)(&place, 2 * LANES * widest);
    return place;
}

static void N(plan)(N(space) * s, const mlp_task *t) {
    memset(s, 0, sizeof *s);
    s->t = t;
    s->fused = t->task == TRAIN && t->optimizer == SGD && !(t->clip > 0);
    s->sparse = t->indptr ? t->sizes[0] * t->sizes[1] : 0;
    for (int64_t i = 0, flat = 0; i < t->layers; i++) {
        layer *l = s->layers + i;
        l->in = t->sizes[i], l->out = t->sizes[i + 1];
        l->wide = N(padded)(l->out);
        l->rows = i == 0 && s->sparse ? 0 : l->in;
        l->flat = flat, flat += (l->in + 1) * l->out;
        l->weights = s->packed, l->biases = s->packed + l->rows * l->wide;
        s->packed = l->biases + l->wide;
    }
}

static void N(train)(N(space) * s) {
    const mlp_task *t = s->t;
    const layer *last = s->layers + t->layers - 1;
    for (int64_t step = 0; step < t->steps; step++) {
        const int64_t *rows = t->order + step * t->batch;
        const double lr = s->fused ? t->lr[step] : -1;
        N(forward)(s, rows, t->batch);
        N(derive)(t, rows, last->out, last->wide, (REAL)-lr, s->outputs[t->layers]);
        N(backward)(s, rows, s->fused ? (REAL)(1 - lr * t->decay) : 0);
        if (!s->fused && t->task == TRAIN) N(optimize)(s, step);
    }
    if (t->task == GRADIENT) {
        N(pack)(s, t->out, s->g, 1);
        if (s->sparse) memcpy(t->out, s->wide_g, (size_t)s->sparse * sizeof(REAL));
        return;
    }
    N(pack)(s, t->parameters, s->w, 1);
    if (s->m) N(pack)(s, t->first, s->m, 1);
    if (s->v) N(pack)(s, t->second, s->v, 1);
}

static void N(predict)(N(space) * s) {
    const mlp_task *t = s->t;
    const layer *last = s->layers + t->layers - 1;
    REAL *out = t->out, *results = s->outputs[t->layers];
    for (int64_t first = 0; first < t->batch; first += BLOCK) {
        const int64_t m = t->batch - first < BLOCK ? t->batch - first : BLOCK;
        N(forward)(s, t->order + first, m);
        if (t->loss == CROSS_ENTROPY) N(softmax)(results, m, last->out, last->wide);
        for (int64_t i = 0; i < m; i++, out += last->out)
            memcpy(out, results + i * last->wide, (size_t)last->out * sizeof(REAL));
    }
}

static int64_t N(run)(const mlp_task *t, void *memory) {
    N(space) s;
    N(plan)(&s, t);
    const int64_t size = (int64_t)N(lay_out)(&s, 0) + ALIGNMENT;
    if (!memory) return size;
    N(lay_out)(&s, ((uintptr_t)memory + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    memset(s.w, 0, (size_t)((char *)s.outputs[1] - (char *)s.w));
    N(pack)(&s, t->parameters, s.w, 0);
    if (s.m) N(pack)(&s, t->first, s.m, 0);
    if (s.v) N(pack)(&s, t->second, s.v, 0);
    if (t->task == PREDICT) N(predict)(&s);
    else N(train)(&s);
    return size;
}

#undef REAL
#undef INT
#undef SIZE
#undef ZIP_LOW
#undef ZIP_HIGH
#undef MAGIC
#undef MANTISSA
#undef BIAS
#undef LOWEST
#undef HIGHEST
#undef LN2_HIGH
#undef LN2_LOW
#undef DEGREE
#undef LANES
#undef VEC
#undef IVEC
#endif
