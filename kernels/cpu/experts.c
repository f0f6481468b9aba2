/* Experts: rows into blocks and back, and products of each row with its own expert's matrix.
 *
 * Within a block an expert's rows lie without gaps, so a product is one small sgemm per block and expert that
 * has rows.  Rows keep token order, so equal choices give equal bits.  Indices come from memory: those that
 * are out of range are passed over. */

#include "kernels/cpu/fp8.h"

static int32_t *int_row(const struct view *v, uint32_t i)
{
    return (int32_t *)v->data + (size_t)i * v->ld;
}

/* place = a choice's number among its expert's, or -1; counts = how many there are */
static void number_choices(const struct kernel_args *k, int32_t *used)
{
    const struct view *index = V(ARRANGE, index), *place = V(ARRANGE, place), *counts = V(ARRANGE, counts);
    uint32_t experts = (uint32_t)INTEGER(ARRANGE, experts);
    int64_t capacity = INTEGER(ARRANGE, capacity);
    uint64_t sequence = UINT64_MAX;
    for (uint32_t e = 0; e < experts; e++)
        *int_row(counts, e) = 0;
    for (uint32_t i = 0; i < index->rows; i++) {
        uint64_t now = ((uint64_t)INTEGER(ARRANGE, start) + i) / (uint64_t)INTEGER(ARRANGE, sequence);
        if (now != sequence)
            memset(used, 0, experts * sizeof *used);
        sequence = now;
        for (uint32_t j = 0; j < index->cols; j++) {
            uint32_t e = (uint32_t)int_row(index, i)[j];
            bool fits = e < experts && (!capacity || used[e] < capacity);
            int_row(place, i)[j] = fits ? (*int_row(counts, e))++ : -1;
            if (fits)
                used[e]++;
        }
    }
}

void cpu_ARRANGE(struct kernel_args *k)
{
    const struct view *index = V(ARRANGE, index), *place = V(ARRANGE, place), *counts = V(ARRANGE, counts);
    uint32_t experts = (uint32_t)INTEGER(ARRANGE, experts), blocks = (uint32_t)INTEGER(ARRANGE, blocks);
    int64_t rows = INTEGER(ARRANGE, rows);
    int32_t *start = (int32_t *)(void *)k->scratch; /* first row of every expert */
    int64_t tokens = INTEGER(ARRANGE, tokens) ? INTEGER(ARRANGE, tokens) : index->rows;
    double *need = V(ARRANGE, need)->data, mean = (double)tokens * index->cols / blocks;
    number_choices(k, start);
    for (uint32_t b = 0, e = 0; b < blocks; b++) {
        int64_t used = 0, wanted = 0;
        for (uint32_t end = e + experts / blocks; e < end; e++) {
            int32_t *count = int_row(counts, e);
            wanted += *count;
            *count = *count < rows - used ? *count : (int32_t)(rows - used);
            start[e] = (int32_t)(b * rows + used);
            used += *count;
        }
        if (wanted > rows && need) {
            need[0] = (double)wanted / mean > need[0] ? (double)wanted / mean : need[0];
            need[1] = (double)wanted > need[1] ? (double)wanted : need[1];
        }
    }
    for (uint32_t i = 0; i < index->rows; i++)
        for (uint32_t j = 0; j < index->cols; j++) {
            int32_t *p = &int_row(place, i)[j], e = int_row(index, i)[j];
            *p = *p >= 0 && *p < *int_row(counts, (uint32_t)e) ? start[e] + *p : -1;
        }
}

/* of token i the row in each block that it has a choice in: `rows` or more where the block is full */
struct visits {
    int32_t *used;   /* by expert: choices of this sequence */
    int32_t *last;   /* by block: the last token with a row, */
    int32_t *filled; /* rows so far, this one included */
};

static void visit_blocks(const struct kernel_args *k, const struct visits *v, uint32_t i)
{
    const struct view *index = V(ARRANGE_ONCE, index), *place = V(ARRANGE_ONCE, place),
                      *chosen = V(ARRANGE_ONCE, chosen);
    uint32_t experts = (uint32_t)INTEGER(ARRANGE_ONCE, experts),
             each = experts / (uint32_t)INTEGER(ARRANGE_ONCE, blocks);
    int64_t capacity = INTEGER(ARRANGE_ONCE, capacity), rows = INTEGER(ARRANGE_ONCE, rows);
    for (uint32_t j = 0; j < index->cols; j++) {
        uint32_t e = (uint32_t)int_row(index, i)[j], b = e / each;
        int_row(place, i)[j] = -1;
        if (e >= experts || (capacity && v->used[e] >= capacity))
            continue;
        v->used[e]++;
        bool first = v->last[b] != (int32_t)i;
        v->last[b] = (int32_t)i;
        v->filled[b] += first;
        if (v->filled[b] > rows)
            continue;
        int32_t row = (int32_t)(b * rows) + v->filled[b] - 1;
        int_row(place, i)[j] = first ? row : -1;
        int_row(chosen, (uint32_t)row)[j] = (int32_t)(e - b * each);
    }
}

void cpu_ARRANGE_ONCE(struct kernel_args *k)
{
    const struct view *index = V(ARRANGE_ONCE, index), *chosen = V(ARRANGE_ONCE, chosen);
    uint32_t experts = (uint32_t)INTEGER(ARRANGE_ONCE, experts), blocks = (uint32_t)INTEGER(ARRANGE_ONCE, blocks);
    int32_t *used = (int32_t *)(void *)k->scratch;
    struct visits v = {used, used + experts, used + experts + blocks};
    double *need = V(ARRANGE_ONCE, need)->data, mean = NUMBER(ARRANGE_ONCE, mean);
    uint64_t sequence = UINT64_MAX;
    for (uint32_t r = 0; r < chosen->rows; r++)
        memset(int_row(chosen, r), 0xff, chosen->cols * sizeof(int32_t));
    memset(v.last, 0xff, blocks * sizeof *v.last);
    memset(v.filled, 0, blocks * sizeof *v.filled);
    for (uint32_t i = 0; i < index->rows; i++) {
        uint64_t now = ((uint64_t)INTEGER(ARRANGE_ONCE, start) + i) / (uint64_t)INTEGER(ARRANGE_ONCE, sequence);
        if (now != sequence)
            memset(v.used, 0, experts * sizeof *v.used);
        sequence = now;
        visit_blocks(k, &v, i);
    }
    for (uint32_t b = 0; need && b < blocks; b++)
        if (v.filled[b] > INTEGER(ARRANGE_ONCE, rows)) {
            need[0] = v.filled[b] / mean > need[0] ? v.filled[b] / mean : need[0];
            need[1] = v.filled[b] > need[1] ? v.filled[b] : need[1];
        }
}

/* weight of a choice, 1 without weights */
static float choice_weight(const struct view *weight, uint32_t i, uint32_t j)
{
    return weight->data ? ((const float *)weight->data)[(size_t)i * weight->ld + j] : 1;
}

static void dispatch_words(const struct view *y, const struct view *x, const struct view *place)
{
    for (uint32_t i = 0; i < place->rows; i++)
        for (uint32_t j = 0; j < place->cols; j++)
            if ((uint32_t)int_row(place, i)[j] < y->rows)
                memcpy(int_row(y, (uint32_t)int_row(place, i)[j]), int_row(x, i), y->cols * sizeof(int32_t));
}

VARIANTS void cpu_DISPATCH(struct kernel_args *k)
{
    const struct view *y = V(DISPATCH, y), *x = V(DISPATCH, x), *place = V(DISPATCH, place);
    const struct view *weight = V(DISPATCH, weight);
    if (y->dtype == DTYPE_I32) {
        dispatch_words(y, x, place);
        return;
    }
    float *tmp = k->scratch, *out = tmp + y->cols;
    for (uint32_t i = 0; i < place->rows; i++) {
        const float *in = x->data ? row_load(x, i, tmp) : NULL;
        for (uint32_t j = 0; j < place->cols; j++) {
            int32_t row = int_row(place, i)[j];
            float w = choice_weight(weight, i, j);
            for (uint32_t c = 0; c < y->cols; c++)
                out[c] = in ? w * in[c] : w;
            if ((uint32_t)row < y->rows)
                row_store(y, (uint32_t)row, out);
        }
    }
}

VARIANTS void cpu_COMBINE(struct kernel_args *k)
{
    const struct view *y = V(COMBINE, y), *x = V(COMBINE, x), *place = V(COMBINE, place);
    const struct view *weight = V(COMBINE, weight);
    float *tmp = k->scratch, *out = tmp + x->cols;
    for (uint32_t i = 0; i < y->rows; i++) {
        memset(out, 0, y->cols * sizeof *out);
        for (uint32_t j = 0; j < place->cols; j++) {
            uint32_t row = (uint32_t)int_row(place, i)[j];
            float w = choice_weight(weight, i, j);
            const float *in = row < x->rows ? row_load(x, row, tmp) : NULL;
            for (uint32_t c = 0; in && c < y->cols; c++)
                out[c] += w * in[c];
        }
        row_store(y, i, out);
    }
}

void cpu_COMBINE_W(struct kernel_args *k)
{
    const struct view *dweight = V(COMBINE_W, dweight), *dy = V(COMBINE_W, dy), *x = V(COMBINE_W, x);
    const struct view *place = V(COMBINE_W, place);
    float *tmp_dy = k->scratch, *tmp_x = tmp_dy + x->cols, *out = tmp_x + x->cols;
    for (uint32_t j = 0; j < x->cols && !dy->data; j++)
        tmp_dy[j] = 1;
    for (uint32_t i = 0; i < place->rows; i++) {
        const float *d = dy->data ? row_load(dy, i, tmp_dy) : tmp_dy;
        for (uint32_t j = 0; j < place->cols; j++) {
            uint32_t row = (uint32_t)int_row(place, i)[j];
            out[j] = row < x->rows ? (float)row_dot(d, row_load(x, row, tmp_x), x->cols) : 0;
        }
        row_store(dweight, i, out);
    }
}

VARIANTS void cpu_WEIGH_I(struct kernel_args *k)
{
    const struct view *dx = V(WEIGH_I, dx), *y = V(WEIGH_I, y), *dweight = V(WEIGH_I, dweight),
                      *weight = V(WEIGH_I, weight);
    uint32_t n = dx->cols;
    float *tmp_dy = k->scratch, *tmp_x = tmp_dy + n, *out = tmp_x + n;
    for (uint32_t i = 0; i < dx->rows; i++) {
        const float *d = row_load(V(WEIGH_I, dy), i, tmp_dy), *in = row_load(V(WEIGH_I, x), i, tmp_x);
        float w = ((const float *)weight->data)[(size_t)i * weight->ld];
        ((float *)dweight->data)[(size_t)i * dweight->ld] = (float)row_dot(d, in, n);
        for (uint32_t c = 0; c < n; c++)
            out[c] = w * in[c];
        row_store(y, i, out);
        for (uint32_t c = 0; c < n; c++)
            out[c] = w * d[c];
        row_store(dx, i, out);
    }
}

/* rows of one expert in one block */
struct group {
    uint32_t expert, row, rows;
};

/* the next group after g, empty ones too; false: that was the last.  Start with expert = UINT32_MAX. */
static bool next_group(struct group *g, uint32_t *at, const struct view *counts, uint32_t experts, uint32_t blocks,
                       uint32_t m)
{
    if (*at == experts * blocks)
        return false;
    uint32_t per_block = m / blocks, block = *at / experts, end = (block + 1) * per_block;
    int32_t count = *int_row(counts, *at);
    g->row = *at % experts ? g->row + g->rows : block * per_block;
    g->expert = *at % experts;
    g->rows = count < 0 ? 0 : (uint32_t)count;
    g->rows = g->rows < end - g->row ? g->rows : end - g->row;
    ++*at;
    return true;
}

static struct view rows_of(const struct view *v, uint32_t row, uint32_t rows)
{
    struct view part = *v;
    part.data = (uint8_t *)v->data + (size_t)row * v->ld * isa_dtype_bytes(v->dtype);
    part.rows = rows;
    return part;
}

/* each group's rows of c = its rows of a times the expert's part of b, transposed or not */
static void multiply_groups(const struct view *c, const struct view *a, const struct view *b, bool tb,
                            const struct view *counts, const struct view *bias, uint32_t experts, uint32_t blocks,
                            const struct fp8_pair *fp8, float *scratch)
{
    struct group g = {0};
    uint32_t per_expert = b->rows / experts;
    for (uint32_t at = 0; next_group(&g, &at, counts, experts, blocks, c->rows);) {
        struct view out = rows_of(c, g.row, g.rows), in = rows_of(a, g.row, g.rows),
                    weight = rows_of(b, g.expert * per_expert, per_expert), own = {0};
        if (bias)
            own = rows_of(bias, g.expert, 1);
        if (g.rows)
            fp8_multiply(&out, &in, false, &weight, tb, bias ? &own : NULL, fp8, scratch);
    }
}

void cpu_GROUPED_NT(struct kernel_args *k)
{
    struct fp8_pair fp8 = {INTEGER(GROUPED_NT, fp8), FP8_INPUT, FP8_WEIGHT};
    multiply_groups(V(GROUPED_NT, c), V(GROUPED_NT, a), V(GROUPED_NT, b), true, V(GROUPED_NT, counts),
                    V(GROUPED_NT, bias)->data ? V(GROUPED_NT, bias) : NULL, (uint32_t)INTEGER(GROUPED_NT, experts),
                    (uint32_t)INTEGER(GROUPED_NT, blocks), &fp8, k->scratch);
}

void cpu_GROUPED_NN(struct kernel_args *k)
{
    struct fp8_pair fp8 = {INTEGER(GROUPED_NN, fp8), FP8_GRADIENT, FP8_WEIGHT};
    multiply_groups(V(GROUPED_NN, c), V(GROUPED_NN, a), V(GROUPED_NN, b), false, V(GROUPED_NN, counts), NULL,
                    (uint32_t)INTEGER(GROUPED_NN, experts), (uint32_t)INTEGER(GROUPED_NN, blocks), &fp8, k->scratch);
}

void cpu_GROUPED_BIAS_W(struct kernel_args *k)
{
    const struct view *db = V(GROUPED_BIAS_W, db), *dy = V(GROUPED_BIAS_W, dy), *weight = V(GROUPED_BIAS_W, weight);
    uint32_t experts = (uint32_t)INTEGER(GROUPED_BIAS_W, experts), blocks = (uint32_t)INTEGER(GROUPED_BIAS_W, blocks);
    double *sum = (double *)(void *)k->scratch;
    float *tmp = k->scratch + 2 * (size_t)dy->cols;
    for (uint32_t e = 0; e < experts; e++) {
        struct group g = {0};
        struct view out = rows_of(db, e, 1);
        memset(sum, 0, dy->cols * sizeof *sum);
        for (uint32_t at = 0; next_group(&g, &at, V(GROUPED_BIAS_W, counts), experts, blocks, dy->rows);)
            for (uint32_t i = g.row; g.expert == e && i < g.row + g.rows; i++) {
                const float *in = row_load(dy, i, tmp);
                double w = weight->data ? (double)((const float *)weight->data)[(size_t)i * weight->ld] : 1;
                for (uint32_t j = 0; j < dy->cols; j++)
                    sum[j] += w * (double)in[j];
            }
        columns_store(&out, sum);
    }
}

/* the first block writes, unless c accumulates; an expert without rows gets zeros */
void cpu_GROUPED_TN(struct kernel_args *k)
{
    const struct view *c = V(GROUPED_TN, c), *a = V(GROUPED_TN, a), *b = V(GROUPED_TN, b);
    uint32_t experts = (uint32_t)INTEGER(GROUPED_TN, experts), blocks = (uint32_t)INTEGER(GROUPED_TN, blocks);
    struct fp8_pair fp8 = {INTEGER(GROUPED_TN, fp8), FP8_GRADIENT, FP8_INPUT};
    struct group g = {0};
    for (uint32_t i = 0; i < c->rows && !c->add; i++)
        memset((uint8_t *)c->data + (size_t)i * c->ld * isa_dtype_bytes(c->dtype), 0,
               c->cols * isa_dtype_bytes(c->dtype));
    for (uint32_t at = 0; next_group(&g, &at, V(GROUPED_TN, counts), experts, blocks, a->rows);) {
        struct view out = rows_of(c, g.expert * a->cols, a->cols), left = rows_of(a, g.row, g.rows),
                    right = rows_of(b, g.row, g.rows);
        out.add = true;
        if (g.rows)
            fp8_multiply(&out, &left, true, &right, false, NULL, &fp8, k->scratch);
    }
}
