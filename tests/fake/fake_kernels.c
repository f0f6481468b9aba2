/* See fake_kernels.h. */

#include "tests/fake/fake_kernels.h"
#include "kernels/cpu/sums.h"
#include "runtime/device.h"

#include <stdlib.h>
#include <string.h>

static void copy_ids(const struct view *v, const int32_t *from)
{
    for (uint32_t i = 0; v->data && i < v->rows; i++)
        ((int32_t *)v->data)[(size_t)i * v->ld] = from[i];
}

enum fake_progress fake_kernel_run(void *state)
{
    struct fake_kernel *k = state;
    if (k->op == OP_TOKENS || k->op == OP_TOKENS_AHEAD) {
        const struct view *tokens = &k->args.operand[0], *targets = &k->args.operand[1];
        copy_ids(tokens, k->staged);
        copy_ids(targets, k->staged + (tokens->data ? tokens->rows : targets->rows));
        return FAKE_DONE;
    }
    if (k->workspace) /* which is nobody else's */
        memset(k->workspace, 0xee, k->workspace_bytes);
    size_t bytes = kernel_scratch_floats(k->op, &k->args) * sizeof(float);
    k->args.scratch = aligned_alloc(64, (bytes + 128) / 64 * 64);
    if (k->args.scratch)
        device_cpu_run(k->op, &k->args);
    free(k->args.scratch);
    return FAKE_DONE;
}

enum fake_progress fake_kernel_sum(void *state)
{
    const struct cuda_sum *s = state;
    size_t size = isa_dtype_bytes(s->dtype);
    union sums sums;
    for (uint32_t row = 0; row < s->rows; row++)
        for (uint32_t col = 0, n; col < s->cols; col += n) {
            n = s->cols - col < SUMS_BLOCK ? s->cols - col : SUMS_BLOCK;
            for (uint32_t m = 0; m < s->nmembers; m++)
                sums_take(&sums, (const uint8_t *)s->x[m] + ((size_t)row * s->x_ld[m] + col) * size, n, s->dtype,
                          !m ? SUMS_SET : s->max ? SUMS_MAX : SUMS_ADD);
            for (uint32_t m = 0; m < s->nmembers; m++)
                if (s->y[m])
                    sums_store(&sums, (uint8_t *)s->y[m] + ((size_t)row * s->y_ld[m] + col) * size, n, s->dtype);
        }
    return FAKE_DONE;
}
