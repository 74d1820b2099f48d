/* What the kernels of attention share:  out = sum_s softmax_s(q k_s / sqrt(width) + relative) v_s.
 *
 * Self-attention reads q, k and v interleaved by head, (heads, 3, width). Keys and values are kept
 * between steps in numbers of `size` bytes: fp32, or fp16 where weights are in 8 bits.
 */
#ifndef KUTTA_ATTENTION_H
#define KUTTA_ATTENTION_H

#include "kernels.h"

#define UNROLLED _Pragma("GCC unroll 16")

INLINE __m512 load_kept(const void *from, int64_t place, __mmask16 which, const int size)
{
    if (size == 2)
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(which, (const half *)from + place));
    return _mm512_maskz_loadu_ps(which, (const float *)from + place);
}

INLINE void store_kept(void *to, int64_t place, __mmask16 which, __m512 numbers, const int size)
{
    const int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    if (size == 2)
        _mm256_mask_storeu_epi16((half *)to + place, which, _mm512_cvtps_ph(numbers, nearest));
    else
        _mm512_mask_storeu_ps((float *)to + place, which, numbers);
}

/* Ask for numbers that are read soon. */
INLINE void fetch(const void *from, int64_t place, int64_t count, const int size)
{
    const char *first = (const char *)from + place * size;
    for (int64_t i = 0; i < count * size; i += LINE)
        _mm_prefetch(first + i, _MM_HINT_T0);
}

/* Of vector `n` after the number `first`, the numbers that exist where there are `count`. */
INLINE __mmask16 part(int64_t count, int64_t first, int n)
{
    int64_t left = count - first - n * LANES;
    return left > 0 ? lanes(left) : 0;
}

/* The sums of 16 vectors, each of its 16 numbers. */
INLINE __m512 sums_of(const __m512 *x)
{
    __m512 quarters[4];
    UNROLLED for (int i = 0; i < 4; i++, x += 4) {
        __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
        __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
        __m512d c = _mm512_castps_pd(a), d = _mm512_castps_pd(b);
        quarters[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(c, d)),
                                    _mm512_castpd_ps(_mm512_unpackhi_pd(c, d)));
    }
#define HALVES(a, b)                                                                               \
    _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD))
    return HALVES(HALVES(quarters[0], quarters[1]), HALVES(quarters[2], quarters[3]));
#undef HALVES
}

static inline float scale_of(const Program *p)
{
    return 1.0f / sqrtf((float)p->width);
}

/* q r for `rows` rows r of the table of relative positions, if there is one. */
static inline void relative_products(const Program *p, const Operation *o, const float *q,
                                     int64_t rows, float *products)
{
    for (int64_t n = 0; o->vector && n < rows; n++) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t i = 0; i < p->width; i += LANES) {
            __mmask16 which = lanes(p->width - i);
            const float *r = o->vector + n * p->width + i;
            sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(which, q + i),
                                  _mm512_maskz_loadu_ps(which, r), sum);
        }
        products[n] = _mm512_reduce_add_ps(sum);
    }
}

#endif
