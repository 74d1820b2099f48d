/* Attention of all tokens of a source to each other, in the encoder. */
#include "attention.h"

#define VECTORS 4 /* of sums over values, that registers hold */

/* q k of one head for `count` tokens, whose keys have `stride` numbers between them. */
static void logits_of(const float *q, const float *keys, int64_t stride, int64_t count,
                      int64_t width, float *logits)
{
    for (int64_t first = 0; first < count; first += LANES) {
        __m512 sums[LANES];
        UNROLLED for (int n = 0; n < LANES; n++) {
            sums[n] = _mm512_setzero_ps();
            const float *key = keys + (first + n) * stride;
            for (int64_t i = 0; i < width && first + n < count; i += LANES) {
                __mmask16 which = lanes(width - i);
                sums[n] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(which, q + i),
                                          _mm512_maskz_loadu_ps(which, key + i), sums[n]);
            }
        }
        _mm512_mask_storeu_ps(logits + first, lanes(count - first), sums_of(sums));
    }
}

/* The weighted values of one head, times a factor. */
static void mean_of_values(const float *weights, float factor, const float *values, int64_t stride,
                           int64_t count, int64_t width, float *out)
{
    for (int64_t i = 0; i < width; i += VECTORS * LANES) {
        __m512 sum[VECTORS];
        UNROLLED for (int v = 0; v < VECTORS; v++) sum[v] = _mm512_setzero_ps();
        for (int64_t j = 0; j < count; j++) {
            __m512 weight = _mm512_set1_ps(weights[j] * factor);
            UNROLLED for (int v = 0; v < VECTORS; v++)
            {
                const float *value = values + j * stride + i + v * LANES;
                sum[v] = _mm512_fmadd_ps(weight, _mm512_maskz_loadu_ps(part(width, i, v), value),
                                         sum[v]);
            }
        }
        UNROLLED for (int v = 0; v < VECTORS; v++)
            _mm512_mask_storeu_ps(out + i + v * LANES, part(width, i, v), sum[v]);
    }
}

/* `space` has room for the logits of a query and its products with relative positions. */
void attend_source(const Program *p, const Call *call, const Operation *o, const float *qkv,
                   float *out, float *space)
{
    const int64_t width = p->width, row = 3 * p->heads * width, clip = p->clip;
    float *logits = space, *products = space + call->source;
    for (int64_t b = 0; b < call->sentences; b++) {
        int64_t first = call->starts[b], length = call->starts[b + 1] - first;
        for (int64_t h = 0; h < p->heads; h++) {
            const float *head = qkv + first * row + 3 * h * width;
            for (int64_t i = 0; i < length; i++) {
                const float *q = head + i * row;
                relative_products(p, o, q, 2 * clip + 1, products);
                logits_of(q, head + width, row, length, width, logits);
                for (int64_t j = 0; j < length; j++) {
                    int64_t distance = j - i < -clip ? -clip : j - i > clip ? clip : j - i;
                    float of_place = o->vector ? products[distance + clip] : 0.0f;
                    logits[j] = (logits[j] + of_place) * scale_of(p);
                }
                float sum = softmax(logits, length);
                mean_of_values(logits, 1.0f / sum, head + 2 * width, row, length, width,
                               out + ((first + i) * p->heads + h) * width);
            }
        }
    }
}

int64_t source_space(const Program *p, const Call *call)
{
    return call->source + 2 * p->clip + 1;
}
