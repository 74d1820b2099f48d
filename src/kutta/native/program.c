/* Running a program: the operations of an encoder, or of one step of a decoder. */
#include "kernels.h"

/* Row `id` of a packed matrix. */
static void unpack(const Matrix *w, int64_t id, float *out)
{
    const int64_t d = w->inputs, fours = up_to(d, 4) / 4, panel = id / PANEL, place = id % PANEL;
    if (!w->codes) {
        for (int64_t i = 0; i < d; i++)
            out[i] = w->numbers[(panel * d + i) * PANEL + place];
        return;
    }
    const int8_t *codes = w->codes + (panel * fours * PANEL + place) * 4;
    for (int64_t i = 0; i < d; i++)
        out[i] = (float)codes[i / 4 * PANEL * 4 + i % 4] * w->scales[id];
}

/* x E: rows of a matrix, times `number`, plus the sinusoids of their positions. */
static void embed(const Call *call, const Operation *o, float *out)
{
    const int64_t d = o->matrix->inputs;
    for (int64_t b = 0; b < call->sentences; b++)
        for (int64_t r = call->starts[b]; r < call->starts[b + 1]; r++) {
            int64_t place = call->positions ? call->positions[b] : r - call->starts[b];
            const float *wave = call->waves + place * d;
            unpack(o->matrix, call->tokens[r], out + r * d);
            for (int64_t i = 0; i < d; i++)
                out[r * d + i] = out[r * d + i] * o->number + wave[i];
        }
}

static void norm(const Operation *o, const float *x, int64_t rows, int64_t width, float *out)
{
    for (int64_t r = 0; r < rows; r++, x += width, out += width) {
        __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
        for (int64_t i = 0; i < width; i += LANES)
            sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes(width - i), x + i));
        __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / (float)width);
        for (int64_t i = 0; i < width; i += LANES) {
            __mmask16 which = lanes(width - i);
            __m512 part = _mm512_maskz_sub_ps(which, _mm512_maskz_loadu_ps(which, x + i), mean);
            squares = _mm512_fmadd_ps(part, part, squares);
        }
        float variance = _mm512_reduce_add_ps(squares) / (float)width;
        __m512 factor = _mm512_set1_ps(1.0f / sqrtf(variance + o->number));
        for (int64_t i = 0; i < width; i += LANES) {
            __mmask16 which = lanes(width - i);
            __m512 part = _mm512_sub_ps(_mm512_maskz_loadu_ps(which, x + i), mean);
            part = _mm512_mul_ps(part, factor);
            part = _mm512_fmadd_ps(part, _mm512_maskz_loadu_ps(which, o->vector + i),
                                   _mm512_maskz_loadu_ps(which, o->offset + i));
            _mm512_mask_storeu_ps(out + i, which, part);
        }
    }
}

/* Operations on numbers, of which all are independent of each other. */
static void elementwise(const Program *p, const Operation *o, int64_t rows, float *const *x)
{
    int64_t width = p->widths[o->out], count = rows * width;
    const float *a = x[o->a], *b = x[o->b], *c = x[o->c];
    const float number = o->number;
    float *out = x[o->out];
    switch (o->kind) {
    case RELU:
        for (int64_t i = 0; i < count; i++)
            out[i] = a[i] > 0.0f ? a[i] : 0.0f;
        break;
    case SIGMOID:
        for (int64_t i = 0; i < count; i++)
            out[i] = 1.0f / (1.0f + expf(-a[i]));
        break;
    case ADD: /* a + number b */
        for (int64_t i = 0; i < count; i++)
            out[i] = a[i] + number * b[i];
        break;
    case SCALE:
        for (int64_t i = 0; i < count; i++)
            out[i] = number * a[i];
        break;
    case SUBTRACT: /* number - a */
        for (int64_t i = 0; i < count; i++)
            out[i] = number - a[i];
        break;
    case MULTIPLY: /* a times a vector */
        for (int64_t r = 0; r < rows; r++, out += width, a += width)
            for (int64_t i = 0; i < width; i++)
                out[i] = a[i] * o->vector[i];
        break;
    case ADD_ROWS: /* a + b c, b with one number for each row */
        for (int64_t r = 0; r < rows; r++, out += width, a += width, c += width)
            for (int64_t i = 0; i < width; i++)
                out[i] = a[i] + b[r] * c[i];
        break;
    case CONCAT:
        for (int64_t r = 0; r < rows; r++) {
            int64_t one = p->widths[o->a], other = p->widths[o->b];
            memcpy(out + r * width, a + r * one, (size_t)one * sizeof(float));
            memcpy(out + r * width + one, b + r * other, (size_t)other * sizeof(float));
        }
        break;
    }
}

static int64_t widest(const Program *p, int64_t rows)
{
    int64_t most = 0;
    for (int64_t n = 0; n < p->operations; n++) {
        const Matrix *w = p->operation[n].matrix;
        if (w && w->inputs > most)
            most = w->inputs;
    }
    return rows * up_to(most, 64);
}

static int64_t numbers_of(const Program *p, const Call *call)
{
    const int64_t each[] = {best_space(call), source_space(p, call), slots_space(p, call),
                            memory_space(call)};
    int64_t most = 0;
    for (int n = 0; n < 4; n++)
        most = each[n] > most ? each[n] : most;
    return up_to(most, LANES);
}

/* The sizes of the structures: others mean that the caller was written for another library. */
EXPORTED const int64_t kutta_sizes[] = {sizeof(Matrix), sizeof(Operation), sizeof(Program),
                                        sizeof(Call)};

/* The bytes of scratch memory that a call needs. */
EXPORTED int64_t kutta_scratch(const Program *p, const Call *call)
{
    int64_t numbers = numbers_of(p, call) + up_to(call->rows, LANES);
    for (int64_t n = 0; n < p->registers; n++)
        numbers += up_to(call->rows * p->widths[n], LANES);
    return numbers * (int64_t)sizeof(float) + widest(p, call->rows) + 64;
}

EXPORTED void kutta_run(const Program *p, const Call *call)
{
    float *at = (float *)up_to((int64_t)(intptr_t)call->scratch, 64);
    float *x[p->registers];
    for (int64_t n = 0; n < p->registers; n++) {
        x[n] = at;
        at += up_to(call->rows * p->widths[n], LANES);
    }
    Space space = {.units = at, .numbers = at + up_to(call->rows, LANES)};
    space.codes = (uint8_t *)(space.numbers + numbers_of(p, call));
    for (const Operation *o = p->operation; o < p->operation + p->operations; o++) {
        const float *a = x[o->a];
        float *out = x[o->out];
        switch (o->kind) {
        case EMBED:
            embed(call, o, out);
            break;
        case NORM:
            norm(o, a, call->rows, p->widths[o->out], out);
            break;
        case PRODUCT:
            multiply(o->matrix, a, call->rows, o->how, o->number, o->vector, out, space);
            break;
        case ATTEND_SOURCE:
            attend_source(p, call, o, a, out, space.numbers);
            break;
        case ATTEND_SLOTS:
            attend_slots(p, call, o, a, out, space.numbers);
            break;
        case ATTEND_MEMORY:
            attend_memory(p, call, o, a, out, space.numbers);
            break;
        case MEMORISE:
            memorise(p, call, o, a);
            break;
        case BEST:
            best(call->listed ? call->listed : o->matrix, call, a, o->how, o->number, space);
            break;
        default:
            elementwise(p, o, call->rows, x);
        }
    }
}
