/* What the sources of this library share. kutta/runtime/kernels.py has the same structures. */
#ifndef KUTTA_KERNELS_H
#define KUTTA_KERNELS_H

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define LINE 64 /* bytes of a line of the cache */
#define EXPORTED __attribute__((visibility("default")))
#define LANES 16  /* fp32 numbers in a vector */
#define PANEL 64  /* columns of a product that are computed together */

typedef uint16_t half; /* fp16, as numpy has it */

/* W (outputs, inputs), packed as panels of PANEL outputs: in 8 bits (panels, inputs / 4, PANEL, 4),
 * with a scale for each output and the sums of its codes; or in fp32 (panels, inputs, PANEL), where
 * `codes` is NULL. */
typedef struct {
    int64_t outputs, inputs;
    int8_t *codes;
    float *scales;
    int32_t *sums;
    float *numbers;
} Matrix;

/* What the activations of a product come from, which says how they are brought into 8 bits. */
enum { BY_ROWS, BEHIND_NORM, BEHIND_RELU };

enum {
    EMBED, NORM, PRODUCT, RELU, SIGMOID, ADD, SCALE, MULTIPLY, ADD_ROWS, SUBTRACT, CONCAT,
    ATTEND_SOURCE, ATTEND_SLOTS, ATTEND_MEMORY, MEMORISE, BEST
};

/* One operation on registers, each an array (rows, width). a, b, c and out are their numbers. */
typedef struct {
    int32_t kind, out, a, b, c, index, how;
    float number;
    const float *vector, *offset;
    const Matrix *matrix;
} Operation;

typedef struct {
    int64_t operations, registers, heads, width, clip;
    int64_t size; /* bytes of a number in caches and memories: 2 or 4 */
    const Operation *operation;
    const int64_t *widths; /* of registers */
} Program;

/* A call: `sentences` of which number b has the rows starts[b] to starts[b + 1].
 *
 * In the encoder rows are the tokens of a source. In a step of the decoder they are hypotheses, all
 * at positions[b]; the caches (sentences, capacity, heads, width) have `used` slots that are filled
 * and room for one more per hypothesis; seen (sentences, hypotheses, slots) says who sees which of
 * them, and distances (sentences, slots) are rows of the table of relative positions. The memories
 * are keys (sentences, heads, width, source) and values (sentences, heads, source, width), of
 * which number b has lengths[b] tokens. */
typedef struct {
    int64_t sentences, rows, used, slots, capacity, source, count;
    int64_t outputs; /* tokens that are possible; further ones fill up the output layer */
    const int64_t *starts, *tokens, *positions, *lengths;
    const float *waves; /* (positions, d) */
    const uint8_t *seen;
    const int64_t *distances;
    void *const *caches;   /* keys and values in turns */
    void *const *memories; /* keys and values in turns */
    const Matrix *listed;  /* the output layer of a shortlist, or NULL */
    float *values;         /* (rows, count): the best log-probabilities */
    int64_t *ids;          /* (rows, count) */
    float *ends;           /* (rows): the log-probability of the end */
    char *scratch;
} Call;

typedef struct {
    uint8_t *codes;   /* (rows, inputs rounded up to 4) */
    float *units;     /* (rows): what a code is worth */
    float *numbers;   /* for whatever an operation needs */
} Space;

/* product.c */
void multiply(const Matrix *w, const float *x, int64_t rows, int how, float unit,
              const float *bias, float *out, Space space);
int zero_of(int how);
void quantise(const float *x, int64_t rows, int64_t width, int how, float unit, Space space);
void multiply_panels(const Matrix *w, int64_t first, int64_t panels, const float *x, int64_t rows,
                     int zero, const float *bias, float *out, int64_t stride, Space space);

/* source.c, slots.c and memory.c; `..._space` is how many numbers `space` has room for */
void attend_source(const Program *p, const Call *call, const Operation *o, const float *qkv,
                   float *out, float *space);
int64_t source_space(const Program *p, const Call *call);
void attend_slots(const Program *p, const Call *call, const Operation *o, const float *qkv,
                  float *out, float *space);
int64_t slots_space(const Program *p, const Call *call);
void attend_memory(const Program *p, const Call *call, const Operation *o, const float *q,
                   float *out, float *space);
int64_t memory_space(const Call *call);
void memorise(const Program *p, const Call *call, const Operation *o, const float *kv);

/* best.c */
void best(const Matrix *w, const Call *call, const float *x, int how, float unit, Space space);
int64_t best_space(const Call *call);
float softmax(float *logits, int64_t count);

static inline int64_t up_to(int64_t number, int64_t whole)
{
    return (number + whole - 1) / whole * whole;
}

/* The first `count` of 16 lanes, all of them where there are more. */
static inline __mmask16 lanes(int64_t count)
{
    return count >= LANES ? (__mmask16)0xFFFF : (__mmask16)((1u << count) - 1);
}

/* exp(x) for x <= 0, to 2e-7 of it; 0 for -inf. */
static inline __m512 exponential(__m512 x)
{
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 y = _mm512_set1_ps(1.9875691500e-4f);
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.3981999507e-3f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(8.3334519073e-3f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(4.1665795894e-2f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.6666665459e-1f));
    y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(5.0000001201e-1f));
    y = _mm512_fmadd_ps(_mm512_mul_ps(r, r), y, _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(y, n);
}

#endif
