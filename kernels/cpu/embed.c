/* Tokens of the batch, token and position embeddings, and the embeddings' gradients.
 * Gradients add rows in token order, so equal batches give equal bits. */

#include "kernels/cpu/places.h"
#include "kernels/cpu/rows.h"
#include "runtime/data.h"

/* n ids from a place on into rows of ids; those that a sample with ids 0 .. last has not are -1 */
static void copy_ids(const struct kernel_args *k, const struct view *ids, uint32_t row, uint64_t sample, uint64_t from,
                     uint32_t n, uint64_t last)
{
    int32_t *out = (int32_t *)ids->data + (size_t)row * ids->ld;
    uint64_t left = from > last ? 0 : last - from + 1;
    uint32_t here = n < left ? n : (uint32_t)left;
    data_copy(k->batch, sample, from, here, out, ids->ld);
    for (uint32_t i = here; i < n; i++)
        out[(size_t)i * ids->ld] = -1;
}

/* operands and the first four attributes are those of TOKENS; last: the last id of a sample */
static void read_ids(struct kernel_args *k, uint64_t ahead, uint64_t last)
{
    const struct view *tokens = V(TOKENS, tokens), *targets = V(TOKENS, targets);
    const double *step = V(TOKENS, step)->data;
    uint32_t sequence = (uint32_t)INTEGER(TOKENS, sequence), rows = tokens->data ? tokens->rows : targets->rows;
    struct places p = {rows, 1, sequence, INTEGER(TOKENS, first), INTEGER(TOKENS, shift)};
    uint32_t run = p.shift ? sequence / 2 : sequence;
    uint64_t first = (uint64_t)step[STEP_SAMPLE] + (uint64_t)INTEGER(TOKENS, sample);
    for (uint32_t row = 0, n; row < rows; row += n) {
        uint32_t w = row % sequence, end = w < run ? run : sequence;
        uint64_t sample = first + row / sequence, from = (uint64_t)place_of(&p, 0, w) + ahead;
        n = rows - row < end - w ? rows - row : end - w;
        if (tokens->data)
            copy_ids(k, tokens, row, sample, from, n, last);
        if (targets->data)
            copy_ids(k, targets, row, sample, from + 1, n, last);
    }
}

void cpu_TOKENS(struct kernel_args *k)
{
    read_ids(k, 0, UINT64_MAX - 1);
}

void cpu_TOKENS_AHEAD(struct kernel_args *k)
{
    read_ids(k, (uint64_t)INTEGER(TOKENS_AHEAD, ahead), (uint64_t)INTEGER(TOKENS_AHEAD, whole));
}

static int64_t token_at(const struct view *tokens, uint32_t i)
{
    return ((const int32_t *)tokens->data)[(size_t)i * tokens->ld];
}

void cpu_EMBED(struct kernel_args *k)
{
    const struct view *y = V(EMBED, y), *tokens = V(EMBED, tokens), *table = V(EMBED, table);
    float *tmp = k->scratch, *zero = tmp + y->cols;
    memset(zero, 0, y->cols * sizeof *zero);
    for (uint32_t i = 0; i < y->rows; i++) {
        int64_t row = token_at(tokens, i) - INTEGER(EMBED, start);
        bool here = row >= 0 && row < (int64_t)table->rows;
        row_store(y, i, here ? row_load(table, (uint32_t)row, tmp) : zero);
    }
}

/* the sum is taken in fp32: in the table itself, or in scratch when that is bf16 */
static struct view open_sum(const struct view *table, float *scratch)
{
    struct view sum = *table;
    sum.add = true;
    if (table->dtype != DTYPE_F32) {
        sum.data = scratch;
        sum.dtype = DTYPE_F32;
        sum.ld = table->cols;
    }
    for (uint32_t i = 0; i < sum.rows && !(table->add && sum.data == table->data); i++)
        memset((float *)sum.data + (size_t)i * sum.ld, 0, sum.cols * sizeof(float));
    return sum;
}

static void close_sum(const struct view *table, const struct view *sum)
{
    for (uint32_t i = 0; i < sum->rows && sum->data != table->data; i++)
        row_store(table, i, (const float *)sum->data + (size_t)i * sum->ld);
}

void cpu_EMBED_W(struct kernel_args *k)
{
    const struct view *table = V(EMBED_W, dtable), *dy = V(EMBED_W, dy), *tokens = V(EMBED_W, tokens);
    struct view sum = open_sum(table, k->scratch + dy->cols);
    for (uint32_t i = 0; i < dy->rows; i++) {
        int64_t row = token_at(tokens, i) - INTEGER(EMBED_W, start);
        if (row >= 0 && row < (int64_t)table->rows)
            row_store(&sum, (uint32_t)row, row_load(dy, i, k->scratch));
    }
    close_sum(table, &sum);
}

VARIANTS void cpu_POSITION(struct kernel_args *k)
{
    const struct view *y = V(POSITION, y), *x = V(POSITION, x), *table = V(POSITION, table);
    uint64_t start = (uint64_t)INTEGER(POSITION, start), sequence = (uint64_t)INTEGER(POSITION, sequence);
    struct places p = {x->rows, 1, (uint32_t)sequence, INTEGER(POSITION, first), INTEGER(POSITION, shift)};
    float *tmp = k->scratch, *tmp_table = tmp + y->cols, *out = tmp_table + y->cols;
    for (uint32_t i = 0; i < y->rows; i++) {
        const float *in = row_load(x, i, tmp);
        uint32_t place = (uint32_t)place_of(&p, 0, (uint32_t)((start + i) % sequence));
        const float *position = row_load(table, place, tmp_table);
        for (uint32_t j = 0; j < y->cols; j++)
            out[j] = in[j] + position[j];
        row_store(y, i, out);
    }
}

void cpu_POSITION_W(struct kernel_args *k)
{
    const struct view *table = V(POSITION_W, dtable), *dy = V(POSITION_W, dy);
    uint64_t start = (uint64_t)INTEGER(POSITION_W, start), sequence = (uint64_t)INTEGER(POSITION_W, sequence);
    struct places p = {dy->rows, 1, (uint32_t)sequence, INTEGER(POSITION_W, first), INTEGER(POSITION_W, shift)};
    struct view sum = open_sum(table, k->scratch + dy->cols);
    for (uint32_t i = 0; i < dy->rows; i++)
        row_store(&sum, (uint32_t)place_of(&p, 0, (uint32_t)((start + i) % sequence)), row_load(dy, i, k->scratch));
    close_sum(table, &sum);
}
