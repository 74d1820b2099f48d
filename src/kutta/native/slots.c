/* Self-attention of a decoding step: hypotheses see the slots of their ancestors.
 *
 * The keys and values of a slot are side by side for all heads, so all heads are read before the
 * next slot.
 */
#include "attention.h"

#define VECTORS 8 /* of sums over values, that registers hold */
#define AHEAD 4   /* slots; the keys that are read now were asked for so many slots before */

/* What a hypothesis sees: slots, and the keys and values of its sentence. */
typedef struct {
    int64_t heads, width, count;
    const int64_t *slots;
    const void *keys, *values;
} Sight;

/* q k of all slots and heads: logits (heads, count). q (heads, 3, width). */
INLINE void logits_of(const Sight *sight, const float *q, float *logits, const int size)
{
    const int64_t heads = sight->heads, width = sight->width, pairs = sight->count * heads;
    int64_t slot = 0, head = 0; /* of the next pair */
    for (int64_t first = 0; first < pairs; first += LANES) {
        const int64_t group = pairs - first < LANES ? pairs - first : LANES;
        int64_t to[LANES];
        __m512 sums[LANES];
        UNROLLED for (int n = 0; n < LANES; n++) {
            sums[n] = _mm512_setzero_ps();
            if (n >= group)
                continue;
            const int64_t place = (sight->slots[slot] * heads + head) * width;
            for (int64_t i = 0; i < width; i += LANES) {
                __mmask16 which = lanes(width - i);
                sums[n] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(which, q + head * 3 * width + i),
                                          load_kept(sight->keys, place + i, which, size), sums[n]);
            }
            fetch(sight->values, place, width, size);
            if (slot + AHEAD < sight->count) {
                int64_t later = (sight->slots[slot + AHEAD] * heads + head) * width;
                fetch(sight->keys, later, width, size);
            }
            to[n] = head * sight->count + slot;
            if (++head == heads) {
                head = 0;
                slot++;
            }
        }
        float found[LANES];
        _mm512_storeu_ps(found, sums_of(sums));
        for (int n = 0; n < group; n++)
            logits[to[n]] = found[n];
    }
}

/* The values of all slots, weighted: weights (heads, count), of which each head has a factor. */
INLINE void mean_of_values(const Sight *sight, const float *weights, const float *factors,
                           float *out, const int size)
{
    const int64_t width = sight->width, row = sight->heads * width;
    const int64_t each = up_to(width, LANES) / LANES, vectors = sight->heads * each;
    for (int64_t first = 0; first < vectors; first += VECTORS) {
        __m512 sum[VECTORS];
        __mmask16 which[VECTORS];
        int64_t place[VECTORS], head[VECTORS];
        UNROLLED for (int v = 0; v < VECTORS; v++) {
            int64_t here = first + v < vectors ? first + v : first, i = here % each * LANES;
            head[v] = here / each;
            which[v] = first + v < vectors ? lanes(width - i) : 0;
            place[v] = head[v] * width + i;
            sum[v] = _mm512_setzero_ps();
        }
        for (int64_t n = 0; n < sight->count; n++) {
            const int64_t slot = sight->slots[n] * row;
            UNROLLED for (int v = 0; v < VECTORS; v++) {
                __m512 weight = _mm512_set1_ps(weights[head[v] * sight->count + n]);
                __m512 value = load_kept(sight->values, slot + place[v], which[v], size);
                sum[v] = _mm512_fmadd_ps(weight, value, sum[v]);
            }
        }
        UNROLLED for (int v = 0; v < VECTORS; v++)
            _mm512_mask_storeu_ps(out + place[v], which[v],
                                  _mm512_mul_ps(sum[v], _mm512_set1_ps(factors[head[v]])));
    }
}

/* Keep the keys and values of a row (heads, 3, width) as a slot. */
INLINE void keep(const float *qkv, int64_t heads, int64_t width, void *keys, void *values,
                 int64_t place, const int size)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < width; i += LANES) {
            const float *key = qkv + (3 * h + 1) * width + i;
            __mmask16 which = lanes(width - i);
            int64_t to = place + h * width + i;
            store_kept(keys, to, which, _mm512_maskz_loadu_ps(which, key), size);
            store_kept(values, to, which, _mm512_maskz_loadu_ps(which, key + width), size);
        }
}

INLINE void attend(const Program *p, const Call *call, const Operation *o, const float *qkv,
                   float *out, float *space, const int size)
{
    const int64_t heads = p->heads, width = p->width, d = heads * width, all = call->slots;
    const int64_t beam = call->rows / call->sentences;
    int64_t *slots = (int64_t *)space;
    float *logits = space + 2 * all, *products = logits + heads * all;
    float *factors = products + p->clip + 1;
    for (int64_t row = 0; row < call->rows; row++) {
        const int64_t b = row / beam, sentence = b * call->capacity * d * size;
        const float *own = qkv + row * 3 * d;
        char *keys = (char *)call->caches[2 * o->index] + sentence;
        char *values = (char *)call->caches[2 * o->index + 1] + sentence;
        for (int64_t n = 0; row % beam == 0 && n < beam; n++)
            keep(own + n * 3 * d, heads, width, keys, values, (call->used + n) * d, size);
        Sight sight = {heads, width, 0, slots, keys, values};
        for (int64_t s = 0; s < all; s++)
            if (call->seen[row * all + s])
                slots[sight.count++] = s;
        logits_of(&sight, own, logits, size);
        for (int64_t h = 0; h < heads; h++) {
            float *logit = logits + h * sight.count;
            relative_products(p, o, own + 3 * h * width, p->clip + 1, products);
            for (int64_t n = 0; n < sight.count; n++) {
                int64_t distance = o->vector ? call->distances[b * all + slots[n]] : 0;
                logit[n] = (logit[n] + (o->vector ? products[distance] : 0.0f)) * scale_of(p);
            }
            factors[h] = 1.0f / softmax(logit, sight.count);
        }
        mean_of_values(&sight, logits, factors, out + row * d, size);
    }
}

/* The keys and values of hypotheses become the next slots first. `space` has room for the numbers
 * of the slots, the logits of a hypothesis, its products with relative positions, and factors. */
void attend_slots(const Program *p, const Call *call, const Operation *o, const float *qkv,
                  float *out, float *space)
{
    if (p->size == 2)
        attend(p, call, o, qkv, out, space, 2);
    else
        attend(p, call, o, qkv, out, space, 4);
}

int64_t slots_space(const Program *p, const Call *call)
{
    return (p->heads + 2) * call->slots + p->clip + 1 + p->heads;
}
