/* What is asked after every training, compiled: cutting a simplex in two, its mean, the seed of a path, areas under
 * curves; and what verdicts ask most often, sums of resampled rows.
 *
 * Each function gives the bits of its twin in Python (sums of fractions but for rounding), which is used where the
 * package was built without this file, and for cells and seeds that are not plain numbers in plain tuples: None is
 * returned for those.
 * Why twice: right after a training the interpreter's own code and data have to be fetched again, so that a few
 * loops over sixteen numbers take as long as ten SGD steps of a small model. One short function does not.
 */
#define Py_LIMITED_API 0x030B0000 /* one library for every Python from 3.11 on */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { MOST = 8, WIDEST = 64 }; /* vertices, as FEW_VERTICES in simplex.py, and their weights */
static const double TIE = 1e-9; /* as in partition.py */

/* ------------------------------------------------------------------------------------------------- simplices */

typedef struct {
    Py_ssize_t count, width;
    double weights[MOST][WIDEST];
} cell;

/* Whether these corners are a few tuples of floats, as a search makes them; the twins in Python take any. */
static int read_cell(PyObject *corners, cell *c) {
    if (!PyTuple_CheckExact(corners)) return 0;
    c->count = PyTuple_Size(corners);
    if (c->count < 1 || c->count > MOST) return 0;
    for (Py_ssize_t i = 0; i < c->count; i++) {
        PyObject *vertex = PyTuple_GetItem(corners, i);
        if (!PyTuple_CheckExact(vertex)) return 0;
        const Py_ssize_t width = PyTuple_Size(vertex);
        if (width > WIDEST || (i && width != c->width)) return 0;
        c->width = width;
        for (Py_ssize_t k = 0; k < width; k++) {
            PyObject *weight = PyTuple_GetItem(vertex, k);
            if (!PyFloat_CheckExact(weight)) return 0;
            c->weights[i][k] = PyFloat_AsDouble(weight);
        }
    }
    return 1;
}

static double distance(const double *one, const double *two, Py_ssize_t width) {
    double largest = 0.0, sum = 0.0;
    for (Py_ssize_t k = 0; k < width; k++) {
        const double gap = fabs(one[k] - two[k]);
        if (gap > largest) largest = gap;
    }
    if (largest == 0.0) return 0.0;
    for (Py_ssize_t k = 0; k < width; k++) { /* squares of tiny differences would vanish */
        const double gap = (one[k] - two[k]) / largest;
        sum += gap * gap;
    }
    return largest * sqrt(sum);
}

/* The vertex half way; NULL, without an exception, where that is one of the two. */
static PyObject *between(const double *one, const double *two, Py_ssize_t width) {
    int is_one = 1, is_two = 1;
    PyObject *middle = PyTuple_New(width);
    for (Py_ssize_t k = 0; middle && k < width; k++) {
        const double mean = 0.5 * (one[k] + two[k]);
        PyObject *weight = PyFloat_FromDouble(mean);
        is_one &= mean == one[k], is_two &= mean == two[k];
        if (!weight || PyTuple_SetItem(middle, k, weight)) Py_CLEAR(middle);
    }
    if (middle && (is_one || is_two)) Py_CLEAR(middle);
    return middle;
}

static PyObject *with_vertex(PyObject *corners, Py_ssize_t count, Py_ssize_t place, PyObject *vertex) {
    PyObject *changed = PyTuple_New(count);
    for (Py_ssize_t i = 0; changed && i < count; i++) {
        PyObject *kept = i == place ? vertex : PyTuple_GetItem(corners, i);
        Py_INCREF(kept);
        if (PyTuple_SetItem(changed, i, kept)) Py_CLEAR(changed);
    }
    return changed;
}

/* See partition.bisect. */
static PyObject *bisected(PyObject *module, PyObject *corners) {
    cell c;
    double lengths[MOST * MOST], longest = 0.0;
    Py_ssize_t first = 0, second = 1, edge = 0;
    (void)module;
    if (!read_cell(corners, &c)) Py_RETURN_NONE;
    if (c.count < 2) return PyTuple_New(0);
    for (Py_ssize_t i = 0; i < c.count; i++)
        for (Py_ssize_t j = i + 1; j < c.count; j++, edge++) {
            lengths[edge] = distance(c.weights[i], c.weights[j], c.width);
            if (lengths[edge] > longest) longest = lengths[edge];
        }
    for (edge = 0; lengths[edge] < longest * (1.0 - 0.5 * TIE); edge++)
        if (++second == c.count) first++, second = first + 1;
    PyObject *middle = between(c.weights[first], c.weights[second], c.width);
    if (!middle) return PyErr_Occurred() ? NULL : PyTuple_New(0);
    PyObject *left = with_vertex(corners, c.count, first, middle), *right = with_vertex(corners, c.count, second, middle);
    PyObject *halves = left && right ? PyTuple_Pack(2, left, right) : NULL;
    Py_XDECREF(left), Py_XDECREF(right), Py_DECREF(middle);
    return halves;
}

/* See SimplexCell.representative: the vertices are added one after the other, as numpy does. */
static PyObject *mean(PyObject *module, PyObject *corners) {
    cell c;
    (void)module;
    if (!read_cell(corners, &c)) Py_RETURN_NONE;
    PyObject *weights = PyList_New(c.width);
    for (Py_ssize_t k = 0; weights && k < c.width; k++) {
        double total = 0.0;
        for (Py_ssize_t i = 0; i < c.count; i++) total += c.weights[i][k];
        PyObject *weight = PyFloat_FromDouble(total / (double)c.count);
        if (!weight || PyList_SetItem(weights, k, weight)) Py_CLEAR(weights);
    }
    return weights;
}

/* ----------------------------------------------------------------------------------------------------- seeds */

/* BLAKE2b (RFC 7693) without a key, with 8 bytes of result. */
enum { BLOCK = 128, DIGEST = 8 };

static const uint64_t START[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
static const uint8_t ORDER[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

typedef struct {
    uint64_t state[8], read; /* bytes that went into the state */
    uint8_t block[BLOCK];
    int filled;
} hash;

static uint64_t rotated(uint64_t word, int by) { return word >> by | word << (64 - by); }

static uint64_t word_at(const uint8_t *bytes) {
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | bytes[i];
    return word;
}

static void take_block(hash *h, int last) {
    uint64_t v[16], words[16];
    h->read += (uint64_t)h->filled;
    memset(h->block + h->filled, 0, (size_t)(BLOCK - h->filled));
    for (int i = 0; i < 16; i++) words[i] = word_at(h->block + 8 * i);
    for (int i = 0; i < 8; i++) v[i] = h->state[i], v[i + 8] = START[i];
    v[12] ^= h->read;
    if (last) v[14] = ~v[14];
    for (int round = 0; round < 12; round++)
        for (int i = 0; i < 8; i++) { /* four columns, then four diagonals */
            const uint8_t *order = ORDER[round % 10] + 2 * i;
            const int turn = i / 4, a = i % 4, b = 4 + (a + turn) % 4, c = 8 + (a + 2 * turn) % 4,
                      d = 12 + (a + 3 * turn) % 4;
            v[a] += v[b] + words[order[0]], v[d] = rotated(v[d] ^ v[a], 32);
            v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 24);
            v[a] += v[b] + words[order[1]], v[d] = rotated(v[d] ^ v[a], 16);
            v[c] += v[d], v[b] = rotated(v[b] ^ v[c], 63);
        }
    for (int i = 0; i < 8; i++) h->state[i] ^= v[i] ^ v[i + 8];
    h->filled = 0;
}

static void add(hash *h, char letter) {
    if (h->filled == BLOCK) take_block(h, 0);
    h->block[h->filled++] = (uint8_t)letter;
}

static void add_number(hash *h, uint64_t number) {
    char digits[20];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count) add(h, digits[--count]);
}

/* Whether it is an int of at least 0 that fits. */
static int plain(PyObject *given, uint64_t *number) {
    if (!PyLong_CheckExact(given)) return 0;
    *number = PyLong_AsUnsignedLongLong(given);
    if (*number != UINT64_MAX || !PyErr_Occurred()) return 1;
    PyErr_Clear();
    return 0;
}

/* See seeds.derive_seed: the hash of "seed:purpose:path". */
static PyObject *derived(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    hash h = {.read = 0, .filled = 0};
    uint64_t seed, purpose, step;
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "derived takes 3 arguments, not %zd", count);
    PyObject *path = given[1];
    if (!plain(given[0], &seed) || !plain(given[2], &purpose) || !PyTuple_CheckExact(path)) Py_RETURN_NONE;
    memcpy(h.state, START, sizeof START);
    h.state[0] ^= 0x01010000 ^ DIGEST;
    add_number(&h, seed), add(&h, ':'), add_number(&h, purpose), add(&h, ':'), add(&h, '(');
    const Py_ssize_t size = PyTuple_Size(path);
    for (Py_ssize_t i = 0; i < size; i++) {
        if (!plain(PyTuple_GetItem(path, i), &step)) Py_RETURN_NONE;
        if (i) add(&h, ','), add(&h, ' ');
        add_number(&h, step);
    }
    if (size == 1) add(&h, ',');
    add(&h, ')');
    take_block(&h, 1);
    return PyLong_FromUnsignedLongLong(h.state[0]);
}

/* ----------------------------------------------------------------------------------------------------- areas */

/* Numbers of 8 bytes without gaps: floats but for RANKED, the rows in the order of each model's scores, and LABELS.
 * OWN has a 1 for the class whose areas are wanted, SHARES a weight for the others, both a 0 elsewhere: products with
 * them are quicker than branches at random. */
enum { SCORES, RANKED, LABELS, OWN, SHARES, SUMS, ARRAYS };

typedef struct {
    Py_buffer arrays[ARRAYS];
    int held;
    Py_ssize_t rows, models, classes;
    const int64_t *labels;
    const double *own, *shares;
} ranking;

static void let_go(ranking *r) {
    while (r->held) PyBuffer_Release(&r->arrays[--r->held]);
}

/* Whether the arrays fit together; an exception is set if not. */
static int hold(ranking *r, PyObject *const *given, Py_ssize_t count, int per_row) {
    const Py_buffer *a = r->arrays;
    r->held = 0;
    if (count != ARRAYS) return PyErr_Format(PyExc_TypeError, "6 arguments are needed, not %zd", count), 0;
    for (; r->held < ARRAYS; r->held++)
        if (PyObject_GetBuffer(given[r->held], &r->arrays[r->held], r->held == SUMS ? PyBUF_WRITABLE : PyBUF_SIMPLE))
            return let_go(r), 0;
    r->rows = a[LABELS].len / 8, r->classes = a[OWN].len / 8;
    r->models = r->rows ? a[SCORES].len / a[LABELS].len : 0;
    r->labels = a[LABELS].buf, r->own = a[OWN].buf, r->shares = a[SHARES].buf;
    const Py_ssize_t all = 8 * r->models * r->rows;
    int fits = a[SCORES].len == all && a[RANKED].len == all && a[SHARES].len == a[OWN].len &&
               a[SUMS].len == (per_row ? all : 8 * r->models * r->classes);
    for (Py_ssize_t i = 0; fits && i < r->rows; i++) fits = r->labels[i] >= 0 && r->labels[i] < r->classes;
    for (Py_ssize_t i = 0; fits && i < r->models * r->rows; i++)
        fits = ((const uint64_t *)a[RANKED].buf)[i] < (uint64_t)r->rows;
    if (!fits) PyErr_SetString(PyExc_ValueError, "these arrays do not fit together"), let_go(r);
    return fits;
}

/* Where the rows end, in a model's order, that have the same score as this one. */
static Py_ssize_t end_of(const ranking *r, const double *scores, const int64_t *order, Py_ssize_t start) {
    Py_ssize_t end = start + 1;
    while (end < r->rows && scores[order[end]] == scores[order[start]]) end++;
    return end;
}

/* See metrics._add_area_terms. */
static PyObject *add_area_terms(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    ranking r;
    (void)module;
    if (!hold(&r, given, count, 1)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    double all = 0.0;
    for (Py_ssize_t i = 0; i < r.rows; i++) all += r.own[r.labels[i]];
    for (Py_ssize_t model = 0; model < r.models; model++) {
        const double *scores = (const double *)r.arrays[SCORES].buf + model * r.rows;
        const int64_t *order = (const int64_t *)r.arrays[RANKED].buf + model * r.rows;
        double *terms = (double *)r.arrays[SUMS].buf + model * r.rows, mine = 0.0, others = 0.0;
        for (Py_ssize_t start = 0, end; start < r.rows; start = end) {
            double above = mine, below = others; /* twice, as far as those with the same score */
            end = end_of(&r, scores, order, start);
            for (Py_ssize_t i = start; i < end; i++) {
                const int64_t label = r.labels[order[i]];
                mine += r.own[label], others += r.shares[label];
            }
            above = 1.0 - 0.5 * (above + mine) / all, below = 0.5 * (below + others);
            for (Py_ssize_t i = start; i < end; i++) {
                const double own = r.own[r.labels[order[i]]];
                terms[order[i]] += own * below + (1.0 - own) * above;
            }
        }
    }
    Py_END_ALLOW_THREADS
    let_go(&r);
    Py_RETURN_NONE;
}

/* See metrics._add_pairs. */
static PyObject *add_pairs(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    ranking r;
    (void)module;
    if (!hold(&r, given, count, 0)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t model = 0; model < r.models; model++) {
        const double *scores = (const double *)r.arrays[SCORES].buf + model * r.rows;
        const int64_t *order = (const int64_t *)r.arrays[RANKED].buf + model * r.rows;
        double *sums = (double *)r.arrays[SUMS].buf + model * r.classes, mine = 0.0;
        for (Py_ssize_t start = 0, end; start < r.rows; start = end) {
            const double below = mine;
            end = end_of(&r, scores, order, start);
            for (Py_ssize_t i = start; i < end; i++) mine += r.own[r.labels[order[i]]];
            for (Py_ssize_t i = start; i < end; i++) sums[r.labels[order[i]]] += below + mine;
        }
    }
    Py_END_ALLOW_THREADS
    let_go(&r);
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------------- resamples */

/* SplitMix64: a number in, bits that look random out. */
static uint64_t scrambled(uint64_t word) {
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return word ^ word >> 31;
}

static void add_row(double *sums, const double *row, Py_ssize_t columns) {
    for (Py_ssize_t k = 0; k < columns; k++) sums[k] += row[k];
}

/* Every resample is as many rows as there are, two of them by the two halves of a word. COLUMNS is a number where it
 * can be, so that the sums of two columns stay in one register. */
#define RESAMPLE(COLUMNS)                                                                       \
    for (Py_ssize_t draw = 0; draw < draws; draw++, sums += (COLUMNS)) {                        \
        for (Py_ssize_t i = 0; i + 1 < rows; i += 2) {                                          \
            const uint64_t word = scrambled(state += 0x9e3779b97f4a7c15);                       \
            add_row(sums, table + ((word & UINT32_MAX) * limit >> 32) * (COLUMNS), (COLUMNS));  \
            add_row(sums, table + ((word >> 32) * limit >> 32) * (COLUMNS), (COLUMNS));         \
        }                                                                                       \
        if (rows % 2) {                                                                         \
            const uint64_t word = scrambled(state += 0x9e3779b97f4a7c15);                       \
            add_row(sums, table + ((word & UINT32_MAX) * limit >> 32) * (COLUMNS), (COLUMNS));  \
        }                                                                                       \
    }

/* See resampling._add_resamples. */
static PyObject *add_resamples(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    Py_buffer read, written;
    uint64_t state;
    (void)module;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "add_resamples takes 4 arguments, not %zd", count);
    const Py_ssize_t columns = PyLong_AsSsize_t(given[1]);
    if (PyErr_Occurred()) return NULL;
    if (!plain(given[2], &state)) return PyErr_Format(PyExc_TypeError, "the key must be an int of 64 bits");
    if (PyObject_GetBuffer(given[0], &read, PyBUF_SIMPLE)) return NULL;
    if (PyObject_GetBuffer(given[3], &written, PyBUF_WRITABLE)) return PyBuffer_Release(&read), NULL;
    const Py_ssize_t width = columns < 1 || columns > PY_SSIZE_T_MAX / 8 ? 0 : 8 * columns;
    const int fits = width && read.len && read.len % width == 0 && written.len % width == 0 &&
                     read.len / width < UINT32_MAX;
    if (fits) {
        const Py_ssize_t rows = read.len / width, draws = written.len / width;
        const uint64_t limit = (uint64_t)rows;
        const double *table = read.buf;
        double *sums = written.buf;
        Py_BEGIN_ALLOW_THREADS
        if (columns == 2) RESAMPLE(2) else RESAMPLE(columns)
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&read), PyBuffer_Release(&written);
    if (!fits) return PyErr_SetString(PyExc_ValueError, "these arrays do not fit together"), NULL;
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------------------------------------------ hulls */

/* The point of a hull that is nearest to another, by Wolfe's algorithm (Finding the nearest point in a polytope, 1976):
 * a few CHOSEN corners, affinely independent, whose plane's nearest point lies between them; a corner that lies beyond
 * the plane through that point joins them, until there is none. */
typedef struct {
    Py_ssize_t corners, width, size;
    const double *places;
    double *products;         /* of every two corners */
    double *beside, *slopes;  /* of every corner: its product with the point; where it is nearer */
    double *weights, *wanted; /* of the chosen: now, and of their plane's nearest point */
    double *factor;
    Py_ssize_t *chosen;
    double largest;
} hull;

static double dot(const double *one, const double *two, Py_ssize_t width) {
    double sums[4] = {0.0}; /* four at a time: one would wait for the one before */
    Py_ssize_t k = 0;
    for (; k + 3 < width; k += 4)
        for (int i = 0; i < 4; i++) sums[i] += one[k + i] * two[k + i];
    for (; k < width; k++) sums[0] += one[k] * two[k];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* The weights of the chosen corners' plane's point nearest to the given one; 0 if they are not independent. Relative to
 * the first of them: how far away the point is does not enter. */
static int nearest_in_plane(hull *h) {
    const Py_ssize_t n = h->size - 1, first = h->chosen[0], all = h->corners;
    const double *of_first = h->products + first * all;
    double *a = h->factor, *u = h->wanted + 1, rest = 1.0;
    for (Py_ssize_t i = 0; i < n; i++) {
        const Py_ssize_t c = h->chosen[i + 1];
        const double *of_c = h->products + c * all;
        for (Py_ssize_t j = 0; j <= i; j++) {
            const Py_ssize_t d = h->chosen[j + 1];
            double sum = of_c[d] - of_first[c] - of_first[d] + of_first[first];
            const double own = sum;
            sum -= dot(a + i * all, a + j * all, j);
            if (j < i) a[i * all + j] = sum / a[j * all + j];
            else if (!(sum > 1e-12 * own) || !(own > 1e-14 * h->largest)) return 0;
            else a[i * all + i] = sqrt(sum);
        }
        u[i] = (h->beside[c] - h->beside[first] - of_first[c] + of_first[first] - dot(a + i * all, u, i)) / a[i * all + i];
    }
    for (Py_ssize_t i = n; i-- > 0;) {
        for (Py_ssize_t j = i + 1; j < n; j++) u[i] -= a[j * all + i] * u[j];
        u[i] /= a[i * all + i];
        rest -= u[i];
    }
    h->wanted[0] = rest;
    return 1;
}

/* Goes to the plane's nearest point, or as far as the chosen corners' hull reaches, leaving those behind that no longer
 * count, until it is there. */
static int settled(hull *h) {
    for (;;) {
        if (!nearest_in_plane(h)) return 0;
        double reach = 1.0;
        Py_ssize_t out = -1, kept = 0;
        for (Py_ssize_t i = 0; i < h->size; i++)
            if (h->wanted[i] < 0.0) {
                const double far = h->weights[i] / (h->weights[i] - h->wanted[i]);
                if (out < 0 || far < reach) reach = far, out = i;
            }
        for (Py_ssize_t i = 0; i < h->size; i++) {
            const double weight = h->weights[i] + reach * (h->wanted[i] - h->weights[i]);
            if (i == out) continue;
            h->weights[kept] = out < 0 ? h->wanted[i] : weight > 0.0 ? weight : 0.0;
            h->chosen[kept++] = h->chosen[i];
        }
        h->size = kept;
        if (out < 0) return 1;
    }
}

static void begin(hull *h) { /* with the nearest corner */
    Py_ssize_t best = 0;
    for (Py_ssize_t i = 1; i < h->corners; i++)
        if (h->products[i * (h->corners + 1)] - 2.0 * h->beside[i] <
            h->products[best * (h->corners + 1)] - 2.0 * h->beside[best])
            best = i;
    h->chosen[0] = best, h->weights[0] = 1.0, h->size = 1;
}

static double to_hull(hull *h, const double *point) {
    double square = dot(point, point, h->width), distance = 0.0;
    for (Py_ssize_t i = 0; i < h->corners; i++) h->beside[i] = dot(h->places + i * h->width, point, h->width);
    const double rounding = 1e-12 * (h->largest + sqrt(h->largest * square));
    if (!h->size || !settled(h)) begin(h); /* the last point's corners are a good guess */
    for (Py_ssize_t round = 0; round < 50 + 10 * h->corners; round++) {
        double mean = 0.0, *slopes = h->slopes;
        Py_ssize_t next = 0;
        for (Py_ssize_t j = 0; j < h->corners; j++) slopes[j] = -h->beside[j];
        for (Py_ssize_t i = 0; i < h->size; i++) {
            const double weight = h->weights[i], *of_i = h->products + h->chosen[i] * h->corners;
            for (Py_ssize_t j = 0; j < h->corners; j++) slopes[j] += weight * of_i[j];
        }
        for (Py_ssize_t i = 0; i < h->size; i++) mean += h->weights[i] * slopes[h->chosen[i]];
        for (Py_ssize_t j = 1; j < h->corners; j++)
            if (slopes[j] < slopes[next]) next = j;
        if (!(slopes[next] < mean - rounding)) break;
        const Py_ssize_t before = h->size;
        h->chosen[h->size] = next, h->weights[h->size++] = 0.0;
        if (!settled(h)) { /* it lies in the others' plane, but for rounding */
            if (h->size > before) h->size = before;
            break;
        }
    }
    for (Py_ssize_t k = 0; k < h->width; k++) {
        double gap = -point[k];
        for (Py_ssize_t i = 0; i < h->size; i++) gap += h->weights[i] * h->places[h->chosen[i] * h->width + k];
        distance += gap * gap;
    }
    return distance;
}

/* See hull._Distance. */
static PyObject *hull_distances(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    Py_buffer read[2], written;
    (void)module;
    if (count != 4) return PyErr_Format(PyExc_TypeError, "hull_distances takes 4 arguments, not %zd", count);
    const Py_ssize_t width = PyLong_AsSsize_t(given[2]);
    if (PyErr_Occurred()) return NULL;
    if (PyObject_GetBuffer(given[0], &read[0], PyBUF_SIMPLE)) return NULL;
    if (PyObject_GetBuffer(given[1], &read[1], PyBUF_SIMPLE)) return PyBuffer_Release(&read[0]), NULL;
    if (PyObject_GetBuffer(given[3], &written, PyBUF_WRITABLE))
        return PyBuffer_Release(&read[0]), PyBuffer_Release(&read[1]), NULL;
    const Py_ssize_t row = width < 1 || width > PY_SSIZE_T_MAX / 8 ? 0 : 8 * width;
    int fits = row && read[0].len && read[0].len % row == 0 && read[1].len % row == 0 &&
               read[1].len / row == written.len / 8 && read[0].len / row < 10000;
    double *room = NULL;
    if (fits) {
        const Py_ssize_t k = read[0].len / row, points = read[1].len / row;
        hull h = {.corners = k, .width = width, .places = read[0].buf};
        /* One more may be chosen than there are, before it is found to depend on the others. */
        room = PyMem_Malloc(sizeof(double) * (size_t)((k + 1) * (2 * k + 6)));
        if (room) {
            h.products = room, h.factor = h.products + k * k, h.beside = h.factor + (k + 1) * k;
            h.weights = h.beside + k, h.wanted = h.weights + k + 1;
            h.slopes = h.wanted + k + 1, h.chosen = (Py_ssize_t *)(h.slopes + k + 1);
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t i = 0; i < k; i++)
                for (Py_ssize_t j = 0; j <= i; j++)
                    h.products[i * k + j] = h.products[j * k + i] =
                        dot(h.places + i * width, h.places + j * width, width);
            for (Py_ssize_t i = 0; i < k; i++)
                if (h.products[i * (k + 1)] > h.largest) h.largest = h.products[i * (k + 1)];
            for (Py_ssize_t i = 0; i < points; i++)
                ((double *)written.buf)[i] = to_hull(&h, (const double *)read[1].buf + i * width);
            Py_END_ALLOW_THREADS
            PyMem_Free(room);
        }
    }
    PyBuffer_Release(&read[0]), PyBuffer_Release(&read[1]), PyBuffer_Release(&written);
    if (!fits) return PyErr_SetString(PyExc_ValueError, "these arrays do not fit together"), NULL;
    if (!room) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------------------------------------- module */

static PyMethodDef METHODS[] = {
    {"bisected", bisected, METH_O, "The corners of both halves of a simplex; () where it cannot be cut."},
    {"mean", mean, METH_O, "The mean of a simplex's corners."},
    {"derived", (PyCFunction)(void (*)(void))derived, METH_FASTCALL, "The seed made of (seed, path, purpose)."},
    {"add_area_terms", (PyCFunction)(void (*)(void))add_area_terms, METH_FASTCALL,
     "Adds every row's share of a class's areas: (scores, order, labels, own, shares, terms)."},
    {"add_pairs", (PyCFunction)(void (*)(void))add_pairs, METH_FASTCALL,
     "Adds twice the pairs with a row of the class below, by class: (scores, order, labels, own, shares, sums)."},
    {"add_resamples", (PyCFunction)(void (*)(void))add_resamples, METH_FASTCALL,
     "Adds sums over rows drawn with replacement: (rows, their columns, key, sums)."},
    {"hull_distances", (PyCFunction)(void (*)(void))hull_distances, METH_FASTCALL,
     "Writes every point's squared distance from a hull: (corners, points, their columns, distances)."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_arithmetic", NULL, 0, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__arithmetic(void) { return PyModuleDef_Init(&MODULE); }
