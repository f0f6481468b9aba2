/* kernels/cuda's attention against kernels/cpu, under the emulation: dtypes, head sizes, windows, soft caps, shared key
 * heads, places of context parallelism, unaligned rows. */

#include "tests/kernels/cuda_compare.h"
#include "kernels/cpu/rows.h"
#include "runtime/device.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>

struct form {
    const char *what;
    double heads, kv, head, value, sequence, sequences, window, softcap;
    bool unaligned;
    double alibi, first_head;
};
static const struct form forms[] = {
    {"small heads", 2, 2, 16, 16, 40, 2, 0, 0, false, 0, 0},
    {"shared key heads", 4, 2, 64, 64, 70, 1, 0, 0, false, 0, 0},
    {"a window", 1, 1, 64, 64, 140, 1, 50, 0, false, 0, 0},
    {"a soft cap", 2, 2, 32, 32, 70, 1, 0, 2.5, false, 0, 0},
    {"96", 1, 1, 96, 96, 70, 1, 0, 0, false, 0, 0},
    {"128", 1, 1, 128, 128, 70, 1, 30, 0, false, 0, 0},
    {"latent attention", 1, 1, 192, 128, 40, 1, 0, 0, false, 0, 0},
    {"256", 1, 1, 256, 256, 40, 1, 0, 3, false, 0, 0},
    {"biases", 4, 2, 64, 64, 140, 1, 0, 0, false, 12, 7},
    {"biases beside a window and a cap", 2, 2, 32, 32, 140, 1, 40, 2.5, false, 2, 0},
    {"biases, odd heads", 2, 1, 10, 6, 37, 1, 0, 0, true, 3, 1},
    {"odd heads, odd rows", 2, 1, 10, 6, 37, 1, 0, 0, true, 0, 0},
};

static void set(struct cuda_case *c, uint32_t at, const char *name, double value)
{
    c->number[at].name = name;
    c->number[at].value = value;
}

static struct cuda_case whole(enum op op, const struct form *f, enum dtype dtype)
{
    struct cuda_case c = {.op = op, .c = dtype, .g = dtype, .unaligned = f->unaligned};
    set(&c, 0, "heads", f->heads);
    set(&c, 1, "kv", f->kv);
    set(&c, 2, "head", f->head);
    set(&c, 3, "u", f->value);
    set(&c, 4, "sequence", f->sequence);
    set(&c, 5, "t", f->sequence * f->sequences);
    set(&c, 6, "window", f->window);
    set(&c, 7, "softcap", f->softcap);
    set(&c, 8, "scale", 1 / sqrt(f->head));
    set(&c, 9, "alibi", f->alibi);
    set(&c, 10, "first_head", f->first_head);
    return c;
}

static void test_whole(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            enum dtype dtype = bf16 ? DTYPE_BF16 : DTYPE_F32;
            double most = bf16 ? 6e-3 : 2e-6;
            struct cuda_case forward = whole(OP_ATTENTION, &forms[i], dtype), backward = whole(OP_ATTENTION_I, &forms[i], dtype);
            CU_ASSERT(cuda_compare(&forward, NULL, most) <= most);
            CU_ASSERT(cuda_compare(&backward, cuda_case_forward, 2 * most) <= 2 * most);
        }
}

struct places {
    const char *what;
    double parts, first, shift, kparts, kfirst, kshift, window;
};
/* sequences of 64 tokens per rank and part; a ring of 4 ranks: rank r has blocks r and 7 - r of 32 places */
static const struct places rings[] = {
    {"own keys", 1, 32, 128, 1, 32, 128, 0},
    {"keys of a rank before", 1, 64, 64, 1, 0, 192, 0},
    {"keys of a rank behind", 1, 0, 192, 1, 96, 0, 0},
    {"all keys gathered", 1, 64, 64, 4, 0, 192, 0},
    {"all keys, a window", 1, 64, 64, 4, 0, 192, 40},
    {"all rows to own keys", 4, 0, 192, 1, 32, 128, 0},
    {"rows that see nothing", 1, 0, 0, 1, 200, 0, 0},
};

static struct cuda_case ring(enum op op, const struct places *p, enum dtype c, enum dtype g, double head, double value, double softcap,
                             double alibi)
{
    struct cuda_case r = {.op = op, .c = c, .g = g};
    set(&r, 0, "heads", p->parts > 1 ? 1 : 2);
    set(&r, 1, "kv", 1);
    set(&r, 2, "head", head);
    set(&r, 3, "w", value);
    set(&r, 4, "sequence", 64);
    set(&r, 5, "t", 2 * 64 * p->parts);
    set(&r, 6, "u", 2 * 64 * p->kparts);
    set(&r, 7, "window", p->window);
    set(&r, 8, "softcap", softcap);
    set(&r, 9, "scale", 1 / sqrt(head));
    set(&r, 10, "parts", p->parts);
    set(&r, 11, "first", p->first);
    set(&r, 12, "shift", p->shift);
    set(&r, 13, "kparts", p->kparts);
    set(&r, 14, "kfirst", p->kfirst);
    set(&r, 15, "kshift", p->kshift);
    set(&r, 16, "alibi", alibi);
    set(&r, 17, "first_head", alibi > 0 ? 1 : 0);
    return r;
}

static void test_parts(void)
{
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++)
        for (uint32_t mode = (uint32_t)i % 2; mode < 4; mode += 2) {
            enum dtype c = mode & 1 ? DTYPE_BF16 : DTYPE_F32, g = mode & 2 ? DTYPE_BF16 : DTYPE_F32;
            double most = mode ? 6e-3 : 2e-6;
            struct cuda_case forward = ring(OP_ATTENTION_PART, &rings[i], c, g, 32, 16, 0, i & 2 ? 6 : 0);
            struct cuda_case backward = ring(OP_ATTENTION_PART_I, &rings[i], c, g, 32, 16, 4, i & 2 ? 0 : 3);
            backward.add = i & 1;
            CU_ASSERT(cuda_compare(&forward, NULL, most) <= most);
            CU_ASSERT(cuda_compare(&backward, cuda_case_forward, 2 * most) <= 2 * most);
        }
}

static void test_merge(void)
{
    struct cuda_case c = {.op = OP_ATTENTION_MERGE, .c = DTYPE_F32, .g = DTYPE_F32};
    set(&c, 0, "heads", 3);
    set(&c, 1, "head", 40);
    set(&c, 2, "t", 5);
    CU_ASSERT(cuda_compare(&c, NULL, 1e-6) <= 1e-6);
}

static void test_repeats(void)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct cuda_case c = whole(OP_ATTENTION_I, &forms[0], bf16 ? DTYPE_BF16 : DTYPE_F32);
        CU_ASSERT(cuda_repeats(&c, cuda_case_forward));
        c = whole(OP_ATTENTION, &forms[0], bf16 ? DTYPE_BF16 : DTYPE_F32);
        CU_ASSERT(cuda_repeats(&c, NULL));
    }
}

static void test_limits(void)
{
    struct kernel_args k = {.scratch = NULL};
    k.attr[ATTR(ATTENTION, heads)].i = k.attr[ATTR(ATTENTION, kv)].i = 1;
    k.attr[ATTR(ATTENTION, head)].i = 512;
    k.attr[ATTR(ATTENTION, sequence)].i = 64;
    k.operand[OPND(ATTENTION, q)] = k.operand[OPND(ATTENTION, v)] = (struct view){.rows = 64, .cols = 512, .ld = 512};
    CU_ASSERT_STRING_EQUAL(cuda_product_check(OP_ATTENTION, &k), "heads of more than 256 dimensions are not supported on GPUs");
    k.attr[ATTR(ATTENTION, head)].i = 256;
    k.operand[OPND(ATTENTION, v)].cols = 256;
    CU_ASSERT_PTR_NULL(cuda_product_check(OP_ATTENTION, &k));
}

void suite_cuda_attention(void);
void suite_cuda_attention(void)
{
    CU_pSuite s = CU_add_suite("cuda_attention", NULL, NULL);
    CU_add_test(s, "as on the CPU", test_whole);
    CU_add_test(s, "parts, by places", test_parts);
    CU_add_test(s, "merge", test_merge);
    CU_add_test(s, "the same bits in any order of threads", test_repeats);
    CU_add_test(s, "limits", test_limits);
}
