/* Fused calls against the same instructions one by one, emulated: what is written must agree, and must be all that is. */

#include "kernels/cuda/fused.h"
#include "tests/emulated/host.h"
#include "tests/kernels/cuda_cases.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 5, ARENA = 1 << 21 };

/* instructions with operands in one piece of memory, of which there are two copies */
struct sequence {
    uint8_t *memory;
    size_t used;
    unsigned n;
    enum op ops[MOST];
    struct kernel_args args[MOST];
    uint64_t random;
};

static double draw(struct sequence *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    double x = ((double)(s->random >> 12) + 0.5) * 0x1p-52;
    return x < 0.5 ? -0.02 - x : x;
}

static struct view make(struct sequence *s, enum dtype dtype, uint32_t rows, uint32_t cols, bool input)
{
    struct view v = {s->memory + s->used, dtype, false, rows, cols, cols};
    s->used += ((size_t)rows * cols * isa_dtype_bytes(dtype) + 63) / 64 * 64;
    for (uint32_t i = 0; i < rows && input; i++)
        for (uint32_t j = 0; j < cols; j++)
            cuda_cases_set(&v, i, j, draw(s));
    return v;
}

static struct sequence begin(void)
{
    struct sequence s = {.memory = aligned_alloc(256, ARENA), .random = 99};
    memset(s.memory, 0xff, ARENA);
    return s;
}

static struct kernel_args *next(struct sequence *s, enum op op)
{
    s->ops[s->n] = op;
    return &s->args[s->n++];
}

#define SET(k, op, name, view) ((k)->operand[OPND(op, name)] = (view))

typedef const char *launcher(const struct cuda_call *c);
static launcher *row_of(enum op op)
{
    launcher *const rows[NOPS] = {[OP_ADD] = cuda_ADD, [OP_RMSNORM] = cuda_RMSNORM, [OP_LAYERNORM] = cuda_LAYERNORM,
                                  [OP_RMSNORM_I] = cuda_RMSNORM_I, [OP_RMSNORM_W] = cuda_RMSNORM_W,
                                  [OP_LAYERNORM_I] = cuda_LAYERNORM_I, [OP_LAYERNORM_W] = cuda_LAYERNORM_W,
                                  [OP_XENT_MAX] = cuda_XENT_MAX, [OP_XENT_SUM] = cuda_XENT_SUM, [OP_XENT_LOSS] = cuda_XENT_LOSS,
                                  [OP_XENT_I] = cuda_XENT_I, [OP_ADAMW] = cuda_ADAMW, [OP_SQNORM] = cuda_SQNORM,
                                  [OP_BIAS_W] = cuda_BIAS_W, [OP_ROPE] = cuda_ROPE};
    return rows[op];
}

/* one by one on a copy of the memory, then fused on the original; largest difference of view over its largest value */
static double compare(struct sequence *s, unsigned fused, const struct view *const *outputs)
{
    const struct kernel_args *args[MOST];
    uint8_t *copy = aligned_alloc(256, ARENA);
    memcpy(copy, s->memory, ARENA);
    ptrdiff_t shift = copy - s->memory;
    double worst = 0;
    for (unsigned i = 0; i < s->n; i++)
        args[i] = &s->args[i];
    CU_ASSERT_EQUAL(cuda_fuse(s->ops, args, s->n), fused);
    for (unsigned i = 0; i < fused; i++) {
        struct kernel_args k = s->args[i];
        for (unsigned o = 0; o < ISA_MAX_OPERANDS; o++)
            k.operand[o].data = k.operand[o].data ? (uint8_t *)k.operand[o].data + shift : NULL;
        struct cuda_call c = {.args = &k, .workspace_bytes = cuda_workspace_bytes(s->ops[i], &k, 90)};
        c.workspace = malloc(c.workspace_bytes + 1);
        CU_ASSERT_PTR_NULL(row_of(s->ops[i])(&c));
        free(c.workspace);
    }
    struct cuda_call c = {.workspace_bytes = cuda_fused_workspace_bytes(s->ops, args, fused)};
    c.workspace = malloc(c.workspace_bytes + 1);
    memset(c.workspace, 0xff, c.workspace_bytes);
    CU_ASSERT_PTR_NULL(cuda_fused(s->ops, args, fused, &c));
    free(c.workspace);
    for (; *outputs; outputs++) {
        struct view v = **outputs, other = v;
        double most = 1e-30, difference = 0;
        other.data = (uint8_t *)v.data + shift;
        for (uint32_t i = 0; i < v.rows; i++)
            for (uint32_t j = 0; j < v.cols; j++) {
                double a = cuda_cases_get(&v, i, j), b = cuda_cases_get(&other, i, j);
                most = fabs(b) > most ? fabs(b) : most;
                difference = isfinite(a) && isfinite(b) ? fmax(difference, fabs(a - b)) : a == b ? difference : INFINITY;
            }
        worst = fmax(worst, difference / most);
        memcpy(v.data, other.data, (size_t)v.rows * v.ld * isa_dtype_bytes(v.dtype));
    }
    CU_ASSERT(memcmp(s->memory, copy, ARENA) == 0); /* nothing else was written */
    free(copy);
    free(s->memory);
    return worst;
}

static void test_add_norm(void)
{
    const struct {
        uint32_t t, h;
        enum dtype dtype;
        bool centred, second, bias;
    } cases[] = {{9, 64, DTYPE_BF16, false, true, false}, {5, 1000, DTYPE_F32, false, true, true}, {3, 4096, DTYPE_BF16, true, true, true},
                 {4, 768, DTYPE_F32, true, false, true},  {2, 8200, DTYPE_BF16, false, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t t = cases[i].t, h = cases[i].h;
        enum dtype d = cases[i].dtype;
        struct sequence s = begin();
        struct view none = {.data = NULL}, sum = make(&s, d, t, h, false), y = make(&s, d, t, h, false), rstd = make(&s, DTYPE_F32, t, 1, false),
                    mean = make(&s, DTYPE_F32, t, 1, false);
        struct kernel_args *k = next(&s, OP_ADD);
        SET(k, ADD, y, sum);
        SET(k, ADD, a, make(&s, d, t, h, true));
        SET(k, ADD, b, cases[i].second ? make(&s, d, t, h, true) : none);
        SET(k, ADD, bias, cases[i].bias ? make(&s, d, 1, h, true) : none);
        if (cases[i].centred) {
            k = next(&s, OP_LAYERNORM);
            SET(k, LAYERNORM, y, y);
            SET(k, LAYERNORM, x, sum);
            SET(k, LAYERNORM, g, make(&s, d, 1, h, true));
            SET(k, LAYERNORM, b, make(&s, d, 1, h, true));
            SET(k, LAYERNORM, mean, mean);
            SET(k, LAYERNORM, rstd, rstd);
            k->attr[ATTR(LAYERNORM, eps)].f = 1e-5;
        } else {
            k = next(&s, OP_RMSNORM);
            SET(k, RMSNORM, y, y);
            SET(k, RMSNORM, x, sum);
            SET(k, RMSNORM, g, make(&s, d, 1, h, true));
            SET(k, RMSNORM, rstd, rstd);
            k->attr[ATTR(RMSNORM, eps)].f = 1e-5;
            mean = rstd;
        }
        CU_ASSERT(compare(&s, 2, (const struct view *const[]){&sum, &y, &rstd, &mean, NULL}) <= 0);
    }
}

static void test_slopes(void)
{
    const struct {
        uint32_t t, h;
        enum dtype dtype;
        bool centred, add;
    } cases[] = {{900, 64, DTYPE_BF16, false, true}, {35, 1000, DTYPE_F32, true, true}, {5, 4104, DTYPE_BF16, true, false},
                 {300, 8, DTYPE_F32, false, false},  {3, 8200, DTYPE_BF16, false, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t t = cases[i].t, h = cases[i].h;
        enum dtype d = cases[i].dtype;
        struct sequence s = begin();
        struct view dy = make(&s, d, t, h, true), x = make(&s, d, t, h, true), rstd = make(&s, DTYPE_F32, t, 1, true),
                    mean = make(&s, DTYPE_F32, t, 1, true), g = make(&s, d, 1, h, true), dx = make(&s, d, t, h, cases[i].add),
                    dg = make(&s, DTYPE_F32, 1, h, cases[i].add), db = make(&s, DTYPE_BF16, 1, h, cases[i].add);
        dx.add = dg.add = db.add = cases[i].add;
        struct kernel_args *k = next(&s, cases[i].centred ? OP_LAYERNORM_I : OP_RMSNORM_I);
        struct kernel_args *w = next(&s, cases[i].centred ? OP_LAYERNORM_W : OP_RMSNORM_W);
        const struct view inputs[] = {dx, dy, x, g};
        memcpy(k->operand, inputs, sizeof inputs); /* both rows begin so */
        if (cases[i].centred) {
            SET(k, LAYERNORM_I, mean, mean);
            SET(k, LAYERNORM_I, rstd, rstd);
            SET(w, LAYERNORM_W, dg, dg);
            SET(w, LAYERNORM_W, db, db);
            SET(w, LAYERNORM_W, dy, dy);
            SET(w, LAYERNORM_W, x, x);
            SET(w, LAYERNORM_W, mean, mean);
            SET(w, LAYERNORM_W, rstd, rstd);
            /* bf16 sums of a bias may round the other way */
            CU_ASSERT(compare(&s, 2, (const struct view *const[]){&dx, &dg, &db, NULL}) < 5e-3);
        } else {
            SET(k, RMSNORM_I, rstd, rstd);
            SET(w, RMSNORM_W, dg, dg);
            SET(w, RMSNORM_W, dy, dy);
            SET(w, RMSNORM_W, x, x);
            SET(w, RMSNORM_W, rstd, rstd);
            CU_ASSERT(compare(&s, 2, (const struct view *const[]){&dx, &dg, NULL}) < 1e-5);
        }
    }
}

/* and the bias of the layer before, whose gradient is the sum of dx's rows */
static void test_tail(void)
{
    const struct {
        uint32_t t, h, fused;
        enum dtype dtype;
        bool centred, add;
    } cases[] = {{700, 64, 3, DTYPE_BF16, true, true}, {35, 1000, 3, DTYPE_F32, false, true}, {5, 4104, 3, DTYPE_BF16, true, false},
                 {3, 8200, 2, DTYPE_BF16, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t t = cases[i].t, h = cases[i].h;
        enum dtype d = cases[i].dtype;
        struct sequence s = begin();
        struct view dy = make(&s, d, t, h, true), x = make(&s, d, t, h, true), rstd = make(&s, DTYPE_F32, t, 1, true),
                    mean = make(&s, DTYPE_F32, t, 1, true), g = make(&s, d, 1, h, true), dx = make(&s, d, t, h, cases[i].add),
                    dg = make(&s, DTYPE_F32, 1, h, cases[i].add), db = make(&s, DTYPE_F32, 1, h, cases[i].add), mine = dx;
        mine.add = dg.add = db.add = cases[i].add;
        struct kernel_args *k = next(&s, cases[i].centred ? OP_LAYERNORM_I : OP_RMSNORM_I);
        struct kernel_args *w = next(&s, cases[i].centred ? OP_LAYERNORM_W : OP_RMSNORM_W), *b = next(&s, OP_BIAS_W);
        const struct view inputs[] = {mine, dy, x, g};
        memcpy(k->operand, inputs, sizeof inputs);
        if (cases[i].centred) {
            SET(k, LAYERNORM_I, mean, mean);
            SET(k, LAYERNORM_I, rstd, rstd);
            SET(w, LAYERNORM_W, dg, dg);
            SET(w, LAYERNORM_W, dy, dy);
            SET(w, LAYERNORM_W, x, x);
            SET(w, LAYERNORM_W, mean, mean);
            SET(w, LAYERNORM_W, rstd, rstd);
        } else {
            SET(k, RMSNORM_I, rstd, rstd);
            SET(w, RMSNORM_W, dg, dg);
            SET(w, RMSNORM_W, dy, dy);
            SET(w, RMSNORM_W, x, x);
            SET(w, RMSNORM_W, rstd, rstd);
        }
        SET(b, BIAS_W, db, db);
        SET(b, BIAS_W, dy, dx);
        CU_ASSERT(compare(&s, cases[i].fused, (const struct view *const[]){&dx, &dg, &db, NULL}) < 2e-5);
    }
}

/* queries and keys side by side, turned in one launch; keys of another matrix, or turned otherwise, are not */
static void test_rope(void)
{
    for (int i = 0; i < 4; i++) {
        struct sequence s = begin();
        struct view all = make(&s, i & 1 ? DTYPE_F32 : DTYPE_BF16, 9, 6 * 16, true), q = all, k = all, other = make(&s, all.dtype, 9, 6 * 16, true);
        q.cols = 4 * 16;
        k.cols = 16;
        k.data = (uint8_t *)all.data + 4 * 16 * isa_dtype_bytes(all.dtype);
        struct kernel_args *a = next(&s, OP_ROPE), *b = next(&s, OP_ROPE);
        SET(a, ROPE, y, q);
        SET(a, ROPE, x, q);
        a->attr[ATTR(ROPE, head)].i = a->attr[ATTR(ROPE, dims)].i = 16;
        a->attr[ATTR(ROPE, sequence)].i = 5;
        a->attr[ATTR(ROPE, theta)].f = 1e4;
        *b = *a;
        if (i == 3)
            b->attr[ATTR(ROPE, inverse)].i = 1;
        if (i == 2)
            k = other;
        SET(b, ROPE, y, k);
        SET(b, ROPE, x, k);
        if (i < 2) {
            CU_ASSERT(compare(&s, 2, (const struct view *const[]){&all, &other, NULL}) <= 0);
            continue;
        }
        CU_ASSERT_EQUAL(cuda_fuse(s.ops, (const struct kernel_args *const[]){a, b}, 2), 1);
        free(s.memory);
    }
}

static void test_xent(void)
{
    for (unsigned i = 0; i < 5; i++) {
        enum dtype d = i & 1 ? DTYPE_F32 : DTYPE_BF16;
        uint32_t t = i == 4 ? 2 : 7, v = i == 4 ? 120008 : i & 2 ? 4104 : 64; /* the longest is more than a block holds */
        int64_t start = i == 3 ? 1000 : 0, vocab = start + v - 5;
        struct sequence s = begin();
        struct view logits = make(&s, d, t, v, true), max = make(&s, DTYPE_F32, t, 1, false), sum = make(&s, DTYPE_F32, t, 2, false),
                    targets = make(&s, DTYPE_I32, t, 1, false), loss = make(&s, DTYPE_F64, 1, 1, true);
        loss.add = true;
        for (uint32_t r = 0; r < t; r++)
            cuda_cases_set(&targets, r, 0, r == 2 ? -1 : r == 4 ? 1e6 : (double)(start + 9 * r));
        struct kernel_args *k = next(&s, OP_XENT_MAX);
        SET(k, XENT_MAX, max, max);
        SET(k, XENT_MAX, logits, logits);
        k->attr[ATTR(XENT_MAX, start)].i = start;
        k->attr[ATTR(XENT_MAX, vocab)].i = vocab;
        k = next(&s, OP_XENT_SUM);
        SET(k, XENT_SUM, sum, sum);
        SET(k, XENT_SUM, logits, logits);
        SET(k, XENT_SUM, max, max);
        SET(k, XENT_SUM, targets, targets);
        memcpy(k->attr, s.args[0].attr, 2 * sizeof *k->attr);
        if (i != 3) {
            k = next(&s, OP_XENT_LOSS);
            SET(k, XENT_LOSS, loss, loss);
            SET(k, XENT_LOSS, sum, sum);
            k->attr[ATTR(XENT_LOSS, scale)].f = 0.5;
            k->attr[ATTR(XENT_LOSS, count)].i = 1;
            k = next(&s, OP_XENT_I);
            SET(k, XENT_I, dlogits, logits);
            SET(k, XENT_I, logits, logits);
            SET(k, XENT_I, max, max);
            SET(k, XENT_I, sum, sum);
            SET(k, XENT_I, targets, targets);
            memcpy(k->attr, s.args[0].attr, 2 * sizeof *k->attr);
            k->attr[ATTR(XENT_I, scale)].f = 0.25;
        }
        double worst = compare(&s, i != 3 ? 4 : 2, (const struct view *const[]){&max, &sum, &loss, &logits, NULL});
        CU_ASSERT(worst < (d == DTYPE_BF16 ? 4e-3 : 2e-6));
    }
}

static void test_many(void)
{
    const uint32_t sizes[MOST] = {8, 40000, 24, 8200, 16};
    struct sequence s = begin(), q = begin();
    struct view scale = make(&s, DTYPE_F64, 1, 1, false), step = make(&s, DTYPE_F64, 1, STEP_WORDS, false), sum = make(&q, DTYPE_F64, 1, 1, true),
                p[MOST], m[MOST], v[MOST], copy[MOST];
    cuda_cases_set(&scale, 0, 0, 0.5);
    for (uint32_t j = 0; j < STEP_WORDS; j++)
        cuda_cases_set(&step, 0, j, 0.1 + 0.01 * j);
    for (unsigned i = 0; i < MOST; i++) {
        enum dtype d = i & 1 ? DTYPE_F32 : DTYPE_BF16;
        struct kernel_args *k = next(&s, OP_ADAMW);
        SET(k, ADAMW, p, p[i] = make(&s, i > 2 ? DTYPE_BF16 : DTYPE_F32, 1, sizes[i], true));
        SET(k, ADAMW, m, m[i] = make(&s, d, 1, sizes[i], true));
        v[i] = make(&s, DTYPE_F32, 1, sizes[i], false);
        for (uint32_t j = 0; j < sizes[i]; j++)
            cuda_cases_set(&v[i], 0, j, fabs(draw(&s)));
        SET(k, ADAMW, v, v[i]);
        SET(k, ADAMW, g, make(&s, d, 1, sizes[i], true));
        copy[i] = i == 2 ? p[i] : make(&s, DTYPE_BF16, 1, sizes[i], false);
        if (i != 2)
            SET(k, ADAMW, copy, copy[i]);
        SET(k, ADAMW, scale, scale);
        SET(k, ADAMW, step, step);
        k->attr[ATTR(ADAMW, beta1)].f = 0.9;
        k->attr[ATTR(ADAMW, beta2)].f = 0.95;
        k->attr[ATTR(ADAMW, eps)].f = 1e-8;
        k->attr[ATTR(ADAMW, decay)].f = i == 4 ? 0.2 : 0.1; /* the last does not fit */
        k = next(&q, OP_SQNORM);
        sum.add = i > 0;
        SET(k, SQNORM, sum, sum);
        SET(k, SQNORM, g, make(&q, d, 1, sizes[i], true));
        k->attr[ATTR(SQNORM, count)].i = 1 + i;
    }
    CU_ASSERT(compare(&s, 4, (const struct view *const[]){&p[0], &p[1], &p[2], &p[3], &m[0], &m[1], &m[2], &m[3], &copy[0], &copy[1], &copy[3],
                                                          &v[0], &v[1], &v[2], &v[3], NULL}) <= 0);
    CU_ASSERT(compare(&q, MOST, (const struct view *const[]){&sum, NULL}) < 1e-9);
}

/* what does not belong together stands alone */
static void test_strangers(void)
{
    struct sequence s = begin();
    struct view a = make(&s, DTYPE_F32, 2, 16, true), b = make(&s, DTYPE_F32, 2, 16, true), g = make(&s, DTYPE_F32, 1, 16, true),
                rstd = make(&s, DTYPE_F32, 2, 1, false);
    const struct kernel_args *args[2] = {&s.args[0], &s.args[1]};
    struct kernel_args *k = next(&s, OP_ADD), *norm = next(&s, OP_RMSNORM);
    SET(k, ADD, y, a);
    SET(k, ADD, a, a);
    SET(norm, RMSNORM, y, b);
    SET(norm, RMSNORM, x, a);
    SET(norm, RMSNORM, g, g);
    SET(norm, RMSNORM, rstd, rstd);
    CU_ASSERT_EQUAL(cuda_fuse(s.ops, args, 2), 2);
    CU_ASSERT_EQUAL(cuda_fuse(s.ops, args, 1), 1);
    k->operand[OPND(ADD, y)].add = true;
    CU_ASSERT_EQUAL(cuda_fuse(s.ops, args, 2), 1);
    k->operand[OPND(ADD, y)].add = false;
    norm->operand[OPND(RMSNORM, x)].data = b.data;
    CU_ASSERT_EQUAL(cuda_fuse(s.ops, args, 2), 1);
    CU_ASSERT_STRING_EQUAL(cuda_fused(s.ops, args, 1, &(struct cuda_call){.args = NULL}), "these instructions do not belong together");
    free(s.memory);
}

void suite_cuda_fused(void);
void suite_cuda_fused(void)
{
    CU_pSuite s = CU_add_suite("cuda_fused", NULL, NULL);
    CU_add_test(s, "residual and norm", test_add_norm);
    CU_add_test(s, "a norm's gradients", test_slopes);
    CU_add_test(s, "a norm's gradients and a bias's", test_tail);
    CU_add_test(s, "queries and keys turned", test_rope);
    CU_add_test(s, "cross-entropy", test_xent);
    CU_add_test(s, "many tensors", test_many);
    CU_add_test(s, "what stands alone", test_strangers);
}
