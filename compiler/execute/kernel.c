/* The table of exact kernels, and those that move and add data; these are linear in everything but attributes. */

#include "compiler/execute/kernel.h"

#include <string.h>

exact_kernel *exact_kernel_of(enum op op)
{
#define EXACT_MATMUL(name) exact_##name
#define EXACT_ATTENTION(name) exact_##name
#define EXACT_STREAM(name) exact_##name
#define EXACT_HOST(name) exact_##name
#define EXACT_P2P(name) NULL
#define EXACT_COLLECTIVE(name) NULL
    static exact_kernel *const table[NOPS] = {
#define INSN(name, queue, unit, operands, attributes, meaning) [OP_##name] = EXACT_##unit(name),
#include "runtime/isa.def"
    };
    return table[op];
}

static uint64_t *row(const struct exact_view *v, uint64_t i)
{
    return v->at + i * v->cols;
}

/* The token id at a place of a sample: a fixed random number below the vocabulary. */
static int64_t token(const struct exact_args *k, uint64_t sample, uint64_t position)
{
    return (int64_t)(field_bits(SALT_TOKEN, sample, position) % (k->vocab ? k->vocab : 1));
}

/* Operands and the first four attributes are those of TOKENS; ids at places beyond `last` are -1. */
static void read_ids(struct exact_args *k, uint64_t ahead, uint64_t last)
{
    const struct exact_view *tokens = V(TOKENS, tokens), *targets = V(TOKENS, targets);
    uint64_t sequence = (uint64_t)INTEGER(TOKENS, sequence), rows = tokens->at ? tokens->rows : targets->rows;
    uint64_t first = V(TOKENS, step)->at[STEP_SAMPLE] + (uint64_t)INTEGER(TOKENS, sample);
    for (uint64_t i = 0; i < rows && sequence; i++) {
        uint64_t sample = first + i / sequence;
        uint64_t place = (uint64_t)exact_place_of(0, i % sequence, sequence, INTEGER(TOKENS, first),
                                                  INTEGER(TOKENS, shift)) +
                         ahead;
        if (tokens->at)
            tokens->at[i] = place > last ? (uint64_t)-1 : (uint64_t)token(k, sample, place);
        if (targets->at)
            targets->at[i] = place >= last ? (uint64_t)-1 : (uint64_t)token(k, sample, place + 1);
    }
}

void exact_TOKENS(struct exact_args *k)
{
    read_ids(k, 0, UINT64_MAX);
}

void exact_TOKENS_AHEAD(struct exact_args *k)
{
    read_ids(k, (uint64_t)INTEGER(TOKENS_AHEAD, ahead), (uint64_t)INTEGER(TOKENS_AHEAD, whole));
}

void exact_FILL(struct exact_args *k)
{
    const struct exact_view *y = V(FILL, y);
    for (uint64_t i = 0; i < (uint64_t)y->rows * y->cols; i++)
        y->at[i] = field_real(NUMBER(FILL, value));
}

void exact_COPY(struct exact_args *k)
{
    const struct exact_view *y = V(COPY, y);
    memcpy(y->at, V(COPY, x)->at, (size_t)y->rows * y->cols * sizeof *y->at);
}

void exact_ADD(struct exact_args *k)
{
    const struct exact_view *y = V(ADD, y), *a = V(ADD, a), *b = V(ADD, b), *bias = V(ADD, bias);
    for (uint64_t i = 0; i < (uint64_t)y->rows * y->cols; i++) {
        uint64_t sum = a->at[i];
        sum = b->at ? field_add(sum, b->at[i]) : sum;
        y->at[i] = bias->at ? field_add(sum, bias->at[i % y->cols]) : sum;
    }
}

static void add_row(uint64_t *to, const uint64_t *from, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        to[j] = field_add(to[j], from[j]);
}

void exact_EMBED(struct exact_args *k)
{
    const struct exact_view *y = V(EMBED, y), *table = V(EMBED, table);
    for (uint32_t i = 0; i < y->rows; i++) {
        int64_t at = (int64_t)V(EMBED, tokens)->at[i] - INTEGER(EMBED, start);
        if (at >= 0 && at < table->rows)
            add_row(row(y, i), row(table, (uint64_t)at), y->cols);
    }
}

void exact_EMBED_W(struct exact_args *k)
{
    const struct exact_view *table = V(EMBED_W, dtable), *dy = V(EMBED_W, dy);
    for (uint32_t i = 0; i < dy->rows; i++) {
        int64_t at = (int64_t)V(EMBED_W, tokens)->at[i] - INTEGER(EMBED_W, start);
        if (at >= 0 && at < table->rows)
            add_row(row(table, (uint64_t)at), row(dy, i), dy->cols);
    }
}

/* The row of a table of positions; 0 for rows beyond the table, which only a wrong plan asks for. */
static uint64_t position(int64_t start, uint64_t i, int64_t sequence, int64_t first, int64_t shift,
                         const struct exact_view *table)
{
    uint64_t n = sequence > 0 ? (uint64_t)sequence : 1;
    uint64_t at = (uint64_t)exact_place_of(0, ((uint64_t)start + i) % n, n, first, shift);
    return at < table->rows ? at : 0;
}
#define POSITION_OF(op, i, table)                                                                                      \
    position(INTEGER(op, start), i, INTEGER(op, sequence), INTEGER(op, first), INTEGER(op, shift), table)

void exact_POSITION(struct exact_args *k)
{
    const struct exact_view *y = V(POSITION, y), *x = V(POSITION, x), *table = V(POSITION, table);
    for (uint32_t i = 0; i < y->rows; i++) {
        uint64_t at = POSITION_OF(POSITION, i, table);
        add_row(row(y, i), row(x, i), y->cols);
        add_row(row(y, i), row(table, at), y->cols);
    }
}

void exact_POSITION_W(struct exact_args *k)
{
    const struct exact_view *table = V(POSITION_W, dtable), *dy = V(POSITION_W, dy);
    for (uint32_t i = 0; i < dy->rows; i++)
        add_row(row(table, POSITION_OF(POSITION_W, i, table)), row(dy, i), dy->cols);
}

static struct exact_view transpose(struct arena *a, const struct exact_view *x)
{
    struct exact_view y = {ARENA_ARRAY(a, uint64_t, (size_t)x->rows * x->cols), x->cols, x->rows};
    for (uint64_t i = 0; i < x->rows; i++)
        for (uint64_t j = 0; j < x->cols; j++)
            row(&y, j)[i] = row(x, i)[j];
    return y;
}

/* c = a b', with all rows contiguous */
static void multiply(const struct exact_view *c, const struct exact_view *a, const struct exact_view *b)
{
    for (uint32_t i = 0; i < c->rows; i++)
        for (uint32_t j = 0; j < c->cols; j++)
            row(c, i)[j] = field_dot(row(a, i), 1, row(b, j), 1, a->cols);
}

void exact_MATMUL_NT(struct exact_args *k)
{
    const struct exact_view *c = V(MATMUL_NT, c), *a = V(MATMUL_NT, a), *b = V(MATMUL_NT, b),
                            *bias = V(MATMUL_NT, bias);
    multiply(c, a, b);
    for (uint64_t i = 0; bias->at && i < (uint64_t)c->rows * c->cols; i++)
        c->at[i] = field_add(c->at[i], bias->at[i % c->cols]);
}

void exact_MATMUL_NN(struct exact_args *k)
{
    struct exact_view b = transpose(k->scratch, V(MATMUL_NN, b));
    multiply(V(MATMUL_NN, c), V(MATMUL_NN, a), &b);
}

void exact_MATMUL_TN(struct exact_args *k)
{
    struct exact_view a = transpose(k->scratch, V(MATMUL_TN, a)), b = transpose(k->scratch, V(MATMUL_TN, b));
    multiply(V(MATMUL_TN, c), &a, &b);
}

void exact_BIAS_W(struct exact_args *k)
{
    const struct exact_view *db = V(BIAS_W, db), *dy = V(BIAS_W, dy);
    for (uint32_t i = 0; i < dy->rows; i++)
        add_row(db->at, row(dy, i), dy->cols);
}

/* A rotation is (c, -s; s, c), where c and s may be any functions of position and pair; its gradient is the
 * transpose. */
void exact_ROPE(struct exact_args *k)
{
    const struct exact_view *y = V(ROPE, y), *x = V(ROPE, x);
    uint64_t head = (uint64_t)INTEGER(ROPE, head), dims = (uint64_t)INTEGER(ROPE, dims);
    uint64_t start = (uint64_t)INTEGER(ROPE, from), sequence = (uint64_t)INTEGER(ROPE, sequence),
             kind = (uint64_t)INTEGER(ROPE, scaling);
    for (size_t i = ATTR(ROPE, theta); i < isa_info(OP_ROPE)->nattrs; i++)
        if (isa_info(OP_ROPE)->attr[i].kind == ATTR_REAL)
            kind = field_bits(kind, i, field_image(k->attr[i].f));
    kind = field_bits(kind, dims, (uint64_t)INTEGER(ROPE, adjacent));
    memcpy(y->at, x->at, (size_t)y->rows * y->cols * sizeof *y->at);
    if (!head || !sequence || dims > head || start > head - dims)
        return;
    for (uint64_t i = 0; i < y->rows; i++) {
        uint64_t w = ((uint64_t)INTEGER(ROPE, start) + i) % sequence;
        uint64_t at = (uint64_t)exact_place_of(0, w, sequence, INTEGER(ROPE, first), INTEGER(ROPE, shift));
        for (uint64_t p = 0; p < dims / 2; p++) {
            uint64_t c = field_hash(SALT_ROPE_COS, kind, at << 32 | p),
                     s = field_hash(SALT_ROPE_SIN, kind, at << 32 | p);
            uint64_t one = INTEGER(ROPE, adjacent) ? 2 * p : p,
                     two = INTEGER(ROPE, adjacent) ? 2 * p + 1 : p + dims / 2;
            s = INTEGER(ROPE, inverse) ? field_minus(s) : s;
            for (uint64_t h = start; h + head <= y->cols + start; h += head) {
                uint64_t u = row(x, i)[h + one], v = row(x, i)[h + two];
                row(y, i)[h + one] = field_sub(field_mul(u, c), field_mul(v, s));
                row(y, i)[h + two] = field_add(field_mul(v, c), field_mul(u, s));
            }
        }
    }
}
