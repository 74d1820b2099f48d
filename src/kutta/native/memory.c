/* Cross-attention: the keys and values of sources, which all hypotheses of a sentence read. */
#include "attention.h"

#define BEAM 4    /* hypotheses, and */
#define VECTORS 4 /* vectors of logits or of values, whose sums registers hold */

/* A head of a sentence: keys (width, source) and values (source, width), of which `length` exist. */
typedef struct {
    int64_t width, source, length;
    const void *keys, *values;
} Memory;

/* q k of n hypotheses, which have `stride` numbers between their q: logits (n, source). */
INLINE void logits_of(const Memory *m, const float *q, int64_t stride, float *logits,
                      const int64_t n, const int size)
{
    for (int64_t s = 0; s < m->length; s += VECTORS * LANES) {
        __m512 sum[BEAM][VECTORS];
        UNROLLED for (int k = 0; k < n; k++)
            UNROLLED for (int v = 0; v < VECTORS; v++) sum[k][v] = _mm512_setzero_ps();
        for (int64_t i = 0; i < m->width; i++) {
            fetch(m->values, i * m->source + s, m->source - s, size);
            UNROLLED for (int v = 0; v < VECTORS; v++) {
                if (s + v * LANES >= m->length)
                    continue;
                __mmask16 which = part(m->length, s, v);
                __m512 key = load_kept(m->keys, i * m->source + s + v * LANES, which, size);
                UNROLLED for (int k = 0; k < n; k++)
                    sum[k][v] = _mm512_fmadd_ps(_mm512_set1_ps(q[k * stride + i]), key, sum[k][v]);
            }
        }
        UNROLLED for (int k = 0; k < n; k++)
            UNROLLED for (int v = 0; v < VECTORS; v++)
                _mm512_mask_storeu_ps(logits + k * m->source + s + v * LANES,
                                      part(m->length, s, v), sum[k][v]);
    }
}

/* The values, weighted for n hypotheses: weights (n, source). Each has a factor. */
INLINE void mean_of_values(const Memory *m, const float *weights, const float *factors,
                           int64_t stride, float *out, const int64_t n, const int size)
{
    for (int64_t i = 0; i < m->width; i += VECTORS * LANES) {
        __m512 sum[BEAM][VECTORS];
        UNROLLED for (int k = 0; k < n; k++)
            UNROLLED for (int v = 0; v < VECTORS; v++) sum[k][v] = _mm512_setzero_ps();
        for (int64_t s = 0; s < m->length; s++) {
            fetch(m->keys, (m->source + s) * m->width, m->width, size); /* of the next head */
            UNROLLED for (int v = 0; v < VECTORS; v++) {
                __mmask16 which = part(m->width, i, v);
                __m512 value = load_kept(m->values, s * m->width + i + v * LANES, which, size);
                UNROLLED for (int k = 0; k < n; k++)
                    sum[k][v] = _mm512_fmadd_ps(_mm512_set1_ps(weights[k * m->source + s]), value,
                                                sum[k][v]);
            }
        }
        UNROLLED for (int k = 0; k < n; k++)
            UNROLLED for (int v = 0; v < VECTORS; v++)
                _mm512_mask_storeu_ps(out + k * stride + i + v * LANES, part(m->width, i, v),
                                      _mm512_mul_ps(sum[k][v], _mm512_set1_ps(factors[k])));
    }
}

/* n hypotheses: q and out (n, heads, width), of which these are one head. */
INLINE void attend_head(const Program *p, const Memory *m, const float *q, float *out,
                        float *logits, const int64_t n, const int size)
{
    const int64_t d = p->heads * p->width;
    float factors[BEAM];
    logits_of(m, q, d, logits, n, size);
    for (int64_t k = 0; k < n; k++) {
        for (int64_t s = 0; s < m->length; s++)
            logits[k * m->source + s] *= scale_of(p);
        factors[k] = 1.0f / softmax(logits + k * m->source, m->length);
    }
    mean_of_values(m, logits, factors, d, out, n, size);
}

INLINE void attend(const Program *p, const Call *call, const Operation *o, const float *q,
                   float *out, float *space, const int size)
{
    const int64_t heads = p->heads, width = p->width, source = call->source, d = heads * width;
    const int64_t beam = call->rows / call->sentences;
    for (int64_t b = 0; b < call->sentences; b++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t place = (b * heads + h) * width * source * size;
            const Memory m = {width, source, call->lengths[b],
                              (const char *)call->memories[2 * o->index] + place,
                              (const char *)call->memories[2 * o->index + 1] + place};
            int64_t k = 0, row = b * beam * d + h * width;
            for (; beam - k >= BEAM; k += BEAM, row += BEAM * d)
                attend_head(p, &m, q + row, out + row, space, BEAM, size);
            for (; k < beam; k++, row += d)
                attend_head(p, &m, q + row, out + row, space, 1, size);
        }
}

/* `space` has room for the logits of BEAM hypotheses. */
void attend_memory(const Program *p, const Call *call, const Operation *o, const float *q,
                   float *out, float *space)
{
    if (p->size == 2)
        attend(p, call, o, q, out, space, 2);
    else
        attend(p, call, o, q, out, space, 4);
}

int64_t memory_space(const Call *call)
{
    return BEAM * call->source;
}

/* Keep the keys and values (heads, 2, width) of source tokens as a memory. */
void memorise(const Program *p, const Call *call, const Operation *o, const float *kv)
{
    const int64_t heads = p->heads, width = p->width, source = call->source;
    void *keys = call->memories[2 * o->index], *values = call->memories[2 * o->index + 1];
    for (int64_t b = 0; b < call->sentences; b++)
        for (int64_t r = call->starts[b]; r < call->starts[b + 1]; r++)
            for (int64_t h = 0; h < heads; h++) {
                const int64_t s = r - call->starts[b], head = (b * heads + h) * width * source;
                const float *key = kv + (r * heads + h) * 2 * width, *value = key + width;
                for (int64_t i = 0; i < width; i++)
                    store_kept(keys, head + i * source + s, 1, _mm512_set1_ps(key[i]), p->size);
                for (int64_t i = 0; i < width; i += LANES) {
                    __m512 numbers = _mm512_maskz_loadu_ps(lanes(width - i), value + i);
                    store_kept(values, head + s * width + i, lanes(width - i), numbers, p->size);
                }
            }
}
