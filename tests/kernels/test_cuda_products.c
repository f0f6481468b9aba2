/* kernels/cuda's products against kernels/cpu, under the emulation: our own kernels for single products and experts'. */

#include "tests/kernels/cuda_compare.h"
#include "kernels/cpu/rows.h"

#include <CUnit/CUnit.h>

static void set(struct cuda_case *c, uint32_t at, const char *name, double value)
{
    c->number[at].name = name;
    c->number[at].value = value;
}

static struct cuda_case product(enum op op, double m, double n, double k, uint32_t mode)
{
    struct cuda_case c = {.op = op, .c = mode & 1 ? DTYPE_BF16 : DTYPE_F32, .g = mode & 2 ? DTYPE_BF16 : DTYPE_F32, .add = mode & 4};
    set(&c, 0, "m", m);
    set(&c, 1, "n", n);
    set(&c, 2, "k", k);
    c.unaligned = mode & 8;
    return c;
}

static double limit(const struct cuda_case *c)
{
    return c->g == DTYPE_BF16 ? 4e-3 : 2e-6;
}

static void test_single(void)
{
    static const enum op ops[] = {OP_MATMUL_NT, OP_MATMUL_NN, OP_MATMUL_TN};
    for (int i = 0; i < 3; i++)
        for (uint32_t mode = 0; mode < 16; mode += mode == 7 ? 2 : 1) {
            bool large = mode == 7;
            struct cuda_case c = product(ops[i], large ? 150 : 33, large ? 140 : 20, large ? 70 : 41, mode);
            CU_ASSERT(cuda_compare(&c, NULL, limit(&c)) <= limit(&c));
        }
    struct cuda_case c = product(OP_MATMUL_NT, 10, 12, 16, 1);
    c.absent = 1u << OPND(MATMUL_NT, bias);
    CU_ASSERT(cuda_compare(&c, NULL, limit(&c)) <= limit(&c));
}

/* blocks of 40 rows for 3 experts: an empty one, one that is cut by the block's end, a negative count */
static void counts(const struct cuda_case *c, struct kernel_args *k)
{
    static const int32_t rows[2][3] = {{17, 0, 20}, {30, -5, 99}};
    uint32_t at = c->op == OP_GROUPED_NT   ? OPND(GROUPED_NT, counts)
                  : c->op == OP_GROUPED_NN ? OPND(GROUPED_NN, counts)
                                           : OPND(GROUPED_TN, counts);
    const struct view *v = &k->operand[at];
    for (uint32_t i = 0; i < 6; i++)
        ((int32_t *)v->data)[(size_t)i * v->ld] = rows[i / 3][i % 3];
}

static void test_grouped(void)
{
    static const enum op ops[] = {OP_GROUPED_NT, OP_GROUPED_NN, OP_GROUPED_TN};
    for (int i = 0; i < 3; i++)
        for (uint32_t mode = 0; mode < 16; mode += 3) {
            struct cuda_case c = product(ops[i], 80, 24, 40, mode);
            set(&c, 3, "experts", 3);
            set(&c, 4, "blocks", 2);
            CU_ASSERT(cuda_compare(&c, counts, limit(&c)) <= limit(&c));
        }
}

/* as many as two tiles per expert, and more groups than a block has threads */
static void many(const struct cuda_case *c, struct kernel_args *k)
{
    const struct view *v = &k->operand[OPND(GROUPED_NT, counts)];
    (void)c;
    for (uint32_t i = 0; i < v->rows; i++)
        ((int32_t *)v->data)[(size_t)i * v->ld] = v->rows > 100 ? (int32_t)(i % 3) : i ? 40 : 200;
}

static void test_tables(void)
{
    struct cuda_case c = product(OP_GROUPED_NT, 300, 16, 16, 1);
    set(&c, 3, "experts", 3);
    set(&c, 4, "blocks", 1);
    CU_ASSERT(cuda_compare(&c, many, limit(&c)) <= limit(&c));
    c = product(OP_GROUPED_NT, 2400, 8, 8, 1);
    set(&c, 3, "experts", 600);
    set(&c, 4, "blocks", 3);
    CU_ASSERT(cuda_compare(&c, many, limit(&c)) <= limit(&c));
    CU_ASSERT(cuda_repeats(&c, many));
}

void suite_cuda_products(void);
void suite_cuda_products(void)
{
    CU_pSuite s = CU_add_suite("cuda_products", NULL, NULL);
    CU_add_test(s, "single, as on the CPU", test_single);
    CU_add_test(s, "experts', as on the CPU", test_grouped);
    CU_add_test(s, "tables of experts' rows", test_tables);
}
