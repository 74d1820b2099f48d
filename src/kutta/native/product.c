/* Products with packed weights:  out = x W^T + bias,  x (rows, inputs).
 *
 * In 8 bits, x is brought into 8 bits as well:
 *
 *     x[r, i] ~ unit[r] (code[r, i] - zero)          codes of 0 to 255
 *     out[r, o] = unit[r] scale[o] (sum_i code[r, i] w[o, i] - zero sum_i w[o, i]) + bias[o]
 *
 * The sums are exact: a CPU with VNNI adds four products of 8 bits to 32 bits in one instruction.
 */
#include "kernels.h"

#define ROWS 6 /* rows that are computed together: 6 x 4 vectors of sums fit the registers */
#define VECTORS (PANEL / LANES)

/* Arrays of vectors stay in registers only where loops over them are unrolled. */
#define EACH_ROW _Pragma("GCC unroll 6") for (int r = 0; r < rows; r++)
#define EACH_VECTOR _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)

EXPORTED void kutta_pack_codes(const int8_t *codes, int64_t outputs, int64_t inputs,
                               int8_t *packed, int32_t *sums)
{
    int64_t fours = up_to(inputs, 4) / 4;
    for (int64_t o = 0; o < up_to(outputs, PANEL); o++) {
        int8_t *to = packed + (o / PANEL * fours * PANEL + o % PANEL) * 4;
        int32_t sum = 0;
        for (int64_t i = 0; i < fours * 4; i++) {
            int8_t code = o < outputs && i < inputs ? codes[o * inputs + i] : 0;
            to[i / 4 * PANEL * 4 + i % 4] = code;
            sum += code;
        }
        sums[o] = sum;
    }
}

EXPORTED void kutta_pack_numbers(const float *numbers, int64_t outputs, int64_t inputs,
                                 float *packed)
{
    for (int64_t o = 0; o < up_to(outputs, PANEL); o++)
        for (int64_t i = 0; i < inputs; i++)
            packed[(o / PANEL * inputs + i) * PANEL + o % PANEL] =
                o < outputs ? numbers[o * inputs + i] : 0.0f;
}

/* Some outputs of a packed matrix as a packed matrix of their own, filled up with outputs of zeros
 * to whole panels. Four codes have the size of a number, so both are copied alike. */
EXPORTED void kutta_choose(const Matrix *from, const int64_t *ids, int64_t count, Matrix *to)
{
    const int32_t *source = from->codes ? (const int32_t *)from->codes : (void *)from->numbers;
    int32_t *packed = from->codes ? (int32_t *)to->codes : (void *)to->numbers;
    int64_t length = from->codes ? up_to(from->inputs, 4) / 4 : from->inputs;
    for (int64_t n = 0; n < up_to(count, PANEL); n++) {
        int64_t id = n < count ? ids[n] : 0;
        int32_t *place = packed + n / PANEL * length * PANEL + n % PANEL;
        const int32_t *of = source + id / PANEL * length * PANEL + id % PANEL;
        for (int64_t i = 0; i < length; i++)
            place[i * PANEL] = n < count ? of[i * PANEL] : 0;
        if (from->codes) {
            to->scales[n] = n < count ? from->scales[id] : 0.0f;
            to->sums[n] = n < count ? from->sums[id] : 0;
        }
    }
}

int zero_of(int how)
{
    return how == BEHIND_RELU ? 0 : 128;
}

static float largest(const float *x, int64_t width, int how)
{
    __m512 most = _mm512_setzero_ps();
    for (int64_t i = 0; i < width; i += LANES) {
        __m512 part = _mm512_maskz_loadu_ps(lanes(width - i), x + i);
        most = _mm512_max_ps(most, how == BEHIND_RELU ? part : _mm512_abs_ps(part));
    }
    return _mm512_reduce_max_ps(most);
}

/* Behind a norm `unit` is that of all rows; behind a ReLU, which this computes too, 255 codes are
 * for what is positive, and else 127 for each sign. */
void quantise(const float *x, int64_t rows, int64_t width, int how, float unit, Space space)
{
    int64_t stride = up_to(width, 4);
    __m512i zero = _mm512_set1_epi32(zero_of(how));
    for (int64_t r = 0; r < rows; r++) {
        const float *from = x + r * width;
        uint8_t *to = space.codes + r * stride;
        float worth = unit;
        if (how != BEHIND_NORM)
            worth = largest(from, width, how) / (how == BEHIND_RELU ? 255.0f : 127.0f);
        __m512 factor = _mm512_set1_ps(worth > 0.0f ? 1.0f / worth : 0.0f);
        space.units[r] = worth;
        for (int64_t i = 0; i < stride; i += LANES) {
            __m512 numbers = _mm512_maskz_loadu_ps(lanes(width - i), from + i);
            __m512i code = _mm512_cvtps_epi32(_mm512_mul_ps(numbers, factor));
            code = _mm512_max_epi32(_mm512_add_epi32(code, zero), _mm512_setzero_si512());
            _mm_mask_storeu_epi8(to + i, lanes(stride - i), _mm512_cvtusepi32_epi8(code));
        }
    }
}

/* Some rows times a panel: out (rows, stride), of which the panel has the first `columns`. */
typedef struct {
    int64_t inputs, stride, columns;
    const char *ahead; /* lines of the next panel that are asked for */
    int64_t lines;
    const uint8_t *codes; /* of the rows, with what they are worth; or NULL */
    const float *units;
    int zero;
    const float *numbers; /* of the rows */
    const void *panel;
    const float *scales;
    const int32_t *sums;
    const float *bias; /* or NULL */
    float *out;
} Block;

/* Ask for a part of the next panel while this one is multiplied, a line at a time. All lines at
 * once are more than memory can give, so each group of rows asks for some. */
INLINE void fetch_ahead(const Block *b, int64_t step)
{
    if (step < b->lines)
        _mm_prefetch(b->ahead + step * LINE, _MM_HINT_T1);
}

/* `sum` plus the products of four codes of 8 bits. GCC 12 keeps a second copy of every sum around
 * the intrinsic, which is too much for the registers. */
static inline __m512i add_products(__m512i sum, __m512i codes, __m512i weights)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(weights));
    return sum;
}

static inline __mmask16 columns_of(const Block *b, int vector)
{
    int64_t left = b->columns - vector * LANES;
    return left > 0 ? lanes(left) : 0;
}

static inline __m512 bias_of(const Block *b, int vector, __mmask16 which)
{
    if (!b->bias)
        return _mm512_setzero_ps();
    return _mm512_maskz_loadu_ps(which, b->bias + vector * LANES);
}

INLINE void multiply_codes(const Block *b, const int rows)
{
    __m512i sum[ROWS][VECTORS], w[VECTORS];
    EACH_ROW EACH_VECTOR sum[r][v] = _mm512_setzero_si512();
    const int64_t fours = up_to(b->inputs, 4) / 4;
    const int32_t *panel = b->panel, *codes = (const int32_t *)b->codes;
    for (int64_t i = 0; i < fours; i++, panel += PANEL) {
        EACH_VECTOR w[v] = _mm512_loadu_si512(panel + v * LANES);
        fetch_ahead(b, i);
        EACH_ROW {
            __m512i x = _mm512_set1_epi32(codes[r * fours + i]);
            EACH_VECTOR sum[r][v] = add_products(sum[r][v], x, w[v]);
        }
    }
    EACH_VECTOR {
        __mmask16 which = columns_of(b, v);
        __m512i shift = _mm512_mullo_epi32(_mm512_set1_epi32(b->zero),
                                           _mm512_loadu_si512(b->sums + v * LANES));
        __m512 scale = _mm512_loadu_ps(b->scales + v * LANES), added = bias_of(b, v, which);
        EACH_ROW {
            __m512 total = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[r][v], shift));
            __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(b->units[r]));
            _mm512_mask_storeu_ps(b->out + r * b->stride + v * LANES, which,
                                  _mm512_fmadd_ps(total, factor, added));
        }
    }
}

INLINE void multiply_numbers(const Block *b, const int rows)
{
    __m512 sum[ROWS][VECTORS], w[VECTORS];
    EACH_ROW EACH_VECTOR sum[r][v] = _mm512_setzero_ps();
    const float *panel = b->panel;
    for (int64_t i = 0; i < b->inputs; i++, panel += PANEL) {
        EACH_VECTOR w[v] = _mm512_loadu_ps(panel + v * LANES);
        fetch_ahead(b, i);
        EACH_ROW {
            __m512 x = _mm512_set1_ps(b->numbers[r * b->inputs + i]);
            EACH_VECTOR sum[r][v] = _mm512_fmadd_ps(x, w[v], sum[r][v]);
        }
    }
    EACH_VECTOR {
        __mmask16 which = columns_of(b, v);
        __m512 added = bias_of(b, v, which);
        EACH_ROW _mm512_mask_storeu_ps(b->out + r * b->stride + v * LANES, which,
                                       _mm512_add_ps(sum[r][v], added));
    }
}

/* Each number of rows has a function of its own, in which the number is a constant. */
static void multiply_block(const Block *b, int64_t rows)
{
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        b->codes ? multiply_codes(b, n) : multiply_numbers(b, n);                                  \
        break;
    switch (rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
    }
#undef CASE
}

/* x (rows, inputs), for weights in 8 bits the codes in `space`, times some panels of W: out (rows,
 * stride), which begins with the first of them. */
void multiply_panels(const Matrix *w, int64_t first, int64_t panels, const float *x, int64_t rows,
                     int zero, const float *bias, float *out, int64_t stride, Space space)
{
    const int64_t width = w->codes ? up_to(w->inputs, 4) : w->inputs;
    const int64_t lines = width * PANEL * (w->codes ? 1 : 4) / LINE;
    const int64_t groups = up_to(rows, ROWS) / ROWS, share = up_to(lines, groups) / groups;
    for (int64_t p = first; p < first + panels; p++)
        for (int64_t r = 0; r < rows; r += ROWS) {
            Block block = {
                .inputs = w->inputs,
                .stride = stride,
                .columns = w->outputs - p * PANEL,
                .zero = zero,
                .bias = bias ? bias + p * PANEL : NULL,
                .out = out + r * stride + (p - first) * PANEL,
            };
            if (w->codes) {
                block.codes = space.codes + r * width;
                block.units = space.units + r;
                block.panel = w->codes + p * width * PANEL;
                block.scales = w->scales + p * PANEL;
                block.sums = w->sums + p * PANEL;
            } else {
                block.numbers = x + r * width;
                block.panel = w->numbers + p * width * PANEL;
            }
            if (groups >= 4 && p + 1 < first + panels) { /* then a share has a line for each step */
                block.ahead = (const char *)block.panel + (lines + r / ROWS * share) * LINE;
                block.lines = share;
            }
            multiply_block(&block, rows - r < ROWS ? rows - r : ROWS);
        }
}

/* x (rows, inputs) times W, plus a bias: out (rows, outputs). */
void multiply(const Matrix *w, const float *x, int64_t rows, int how, float unit,
              const float *bias, float *out, Space space)
{
    if (w->codes)
        quantise(x, rows, w->inputs, how, unit, space);
    multiply_panels(w, 0, up_to(w->outputs, PANEL) / PANEL, x, rows, zero_of(how), bias, out,
                    w->outputs, space);
}
