/* The output layer: the best continuations of every row, without all log-probabilities at once. */
#include "kernels.h"

#define CHUNK 1024 /* tokens whose logits are computed together, so that they stay in the cache */
#define END 3      /* the id of the end of a sentence; kutta/data/tokenizer.py */

/* logits -> exp(logits - max), their sum is returned; all 0 where nothing is possible. */
float softmax(float *logits, int64_t count)
{
    __m512 most = _mm512_set1_ps(-INFINITY);
    for (int64_t i = 0; i < count; i += LANES)
        most = _mm512_mask_max_ps(most, lanes(count - i), most,
                                  _mm512_maskz_loadu_ps(lanes(count - i), logits + i));
    float highest = _mm512_reduce_max_ps(most);
    __m512 sum = _mm512_setzero_ps(), shift = _mm512_set1_ps(highest);
    for (int64_t i = 0; i < count; i += LANES) {
        __mmask16 which = lanes(count - i);
        __m512 x = _mm512_maskz_loadu_ps(which, logits + i);
        __m512 y = exponential(_mm512_sub_ps(x, shift));
        _mm512_mask_storeu_ps(logits + i, which, y);
        sum = _mm512_mask_add_ps(sum, which, sum, y);
    }
    return _mm512_reduce_add_ps(sum);
}

/* What is known of a row after some of its tokens: sum exp(logit - highest), how many of the best
 * have been found, and what others have to exceed. */
typedef struct {
    float highest, sum, end, least;
    int64_t found;
} Row;

/* Put a token among the `count` best, which are in order; of equal ones the first stays first. */
static void keep(Row *row, float *values, int64_t *ids, int64_t count, float value, int64_t id)
{
    int64_t place = row->found < count ? row->found++ : count - 1;
    for (; place > 0 && values[place - 1] < value; place--) {
        values[place] = values[place - 1];
        ids[place] = ids[place - 1];
    }
    values[place] = value;
    ids[place] = id;
    if (row->found == count)
        row->least = values[count - 1];
}

/* Logits (size) of the tokens from `first` on. */
static void look_at(Row *row, const float *logits, int64_t first, int64_t size, float *values,
                    int64_t *ids, int64_t count)
{
    __m512 most = _mm512_set1_ps(-INFINITY);
    for (int64_t i = 0; i < size; i += LANES) {
        __mmask16 which = lanes(size - i);
        __m512 x = _mm512_maskz_loadu_ps(which, logits + i);
        most = _mm512_mask_max_ps(most, which, most, x);
        __m512 least = _mm512_set1_ps(row->least);
        unsigned better = _mm512_mask_cmp_ps_mask(which, x, least, _CMP_NLE_UQ);
        for (; better; better &= better - 1) {
            int64_t place = i + __builtin_ctz(better);
            if (!(logits[place] <= row->least))
                keep(row, values, ids, count, logits[place], first + place);
        }
    }
    float highest = _mm512_reduce_max_ps(most);
    if (highest > row->highest) {
        row->sum *= expf(row->highest - highest);
        row->highest = highest;
    }
    __m512 sum = _mm512_setzero_ps(), shift = _mm512_set1_ps(row->highest);
    for (int64_t i = 0; i < size; i += LANES) {
        __mmask16 which = lanes(size - i);
        __m512 x = _mm512_maskz_loadu_ps(which, logits + i);
        sum = _mm512_mask_add_ps(sum, which, sum, exponential(_mm512_sub_ps(x, shift)));
    }
    row->sum += _mm512_reduce_add_ps(sum);
}

int64_t best_space(const Call *call)
{
    return call->rows * (CHUNK + (int64_t)(sizeof(Row) / sizeof(float)));
}

/* x (rows, inputs) -> the `count` best tokens of every row, as log-probabilities, and that of the
 * end. A count of all tokens gives all, in order of their ids. */
void best(const Matrix *w, const Call *call, const float *x, int how, float unit, Space space)
{
    int64_t rows = call->rows, outputs = call->outputs, count = call->count;
    int whole = count >= outputs;
    Row *row = (Row *)space.numbers;
    float *logits = space.numbers + rows * (int64_t)(sizeof(Row) / sizeof(float));
    for (int64_t r = 0; r < rows; r++)
        row[r] = (Row){-INFINITY, 0.0f, -INFINITY, whole ? INFINITY : NAN, 0};
    if (w->codes)
        quantise(x, rows, w->inputs, how, unit, space);
    for (int64_t first = 0; first < outputs; first += CHUNK) {
        int64_t size = outputs - first < CHUNK ? outputs - first : CHUNK;
        multiply_panels(w, first / PANEL, up_to(size, PANEL) / PANEL, x, rows, zero_of(how), NULL,
                        logits, CHUNK, space);
        for (int64_t r = 0; r < rows; r++) {
            const float *of = logits + r * CHUNK;
            if (first <= END && END < first + size)
                row[r].end = of[END - first];
            float *values = call->values + r * count;
            int64_t *ids = call->ids + r * count;
            look_at(row + r, of, first, size, values, ids, count);
            for (int64_t i = 0; whole && i < size; i++) {
                values[first + i] = of[i];
                ids[first + i] = first + i;
            }
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        float total = row[r].highest + logf(row[r].sum);
        call->ends[r] = row[r].end - total;
        for (int64_t i = 0; i < count; i++)
            call->values[r * count + i] -= total;
    }
}
