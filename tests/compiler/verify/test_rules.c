/* The transfer rules of property 7, by numbers: an instruction on parts of a matrix gives parts of the
 * result, or partial sums or maxima of it, exactly as the rules claim.
 *
 * Each case splits one name of the table's shapes in two.  Inputs and outputs that have the name in their
 * shape are cut there; the results of the two parts, side by side, added or maximised, must equal the whole.
 */

#include "compiler/support/vec.h"
#include "compiler/verify/verify.h"
#include "kernels/kernels.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum join { JOIN_SIDE /* by side */, JOIN_SUM, JOIN_MAX };
struct rule_case {
    enum op op;
    const char *split; /* a name, or two that are split together */
    enum join join;
    const char *sizes; /* "t=8 h=16": all names, even where split */
    const char *attrs; /* "eps=1e-5 vocab=10" */
    const char *start; /* the name whose first element the BIND attribute `start` says */
};
/* a sequence of 16 tokens on two ranks, whose rows lie one below the other: runs of 4 */
#define PARTS "t=16 u=16 heads=2 kv=2 head=2 w=3 sequence=8 parts=2 kparts=2"
static const struct rule_case cases[] = {
    {OP_COPY, "t", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_COPY, "h", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_ADD, "t", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_ADD, "h", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_EMBED, "v", JOIN_SUM, "t=6 v=10 h=4", "", "v"},
    {OP_EMBED, "t", JOIN_SIDE, "t=6 v=10 h=4", "", NULL},
    {OP_EMBED_W, "t", JOIN_SUM, "t=6 v=10 h=4", "", NULL},
    {OP_EMBED_W, "v", JOIN_SIDE, "t=6 v=10 h=4", "", "v"},
    {OP_POSITION, "t", JOIN_SIDE, "t=8 h=4 s=4", "sequence=4", "t"},
    {OP_POSITION_W, "t", JOIN_SUM, "t=8 h=4 s=4", "sequence=4", "t"},
    {OP_RMSNORM, "t", JOIN_SIDE, "t=6 h=8", "eps=1e-5", NULL},
    {OP_RMSNORM_I, "t", JOIN_SIDE, "t=6 h=8", "", NULL},
    {OP_RMSNORM_W, "t", JOIN_SUM, "t=6 h=8", "", NULL},
    {OP_LAYERNORM, "t", JOIN_SIDE, "t=6 h=8", "eps=1e-5", NULL},
    {OP_LAYERNORM_I, "t", JOIN_SIDE, "t=6 h=8", "", NULL},
    {OP_LAYERNORM_W, "t", JOIN_SUM, "t=6 h=8", "", NULL},
    {OP_MATMUL_NT, "m", JOIN_SIDE, "m=6 n=4 k=8", "", NULL},
    {OP_MATMUL_NT, "n", JOIN_SIDE, "m=6 n=4 k=8", "", NULL},
    {OP_MATMUL_NT, "k", JOIN_SUM, "m=6 n=4 k=8", "no-bias", NULL},
    {OP_MATMUL_NN, "m", JOIN_SIDE, "m=6 n=4 k=8", "", NULL},
    {OP_MATMUL_NN, "n", JOIN_SIDE, "m=6 n=4 k=8", "", NULL},
    {OP_MATMUL_NN, "k", JOIN_SUM, "m=6 n=4 k=8", "", NULL},
    {OP_MATMUL_TN, "m", JOIN_SIDE, "m=6 n=4 k=8", "", NULL},
    {OP_MATMUL_TN, "n", JOIN_SIDE, "m=6 n=4 k=8", "", NULL},
    {OP_MATMUL_TN, "k", JOIN_SUM, "m=6 n=4 k=8", "", NULL},
    {OP_BIAS_W, "t", JOIN_SUM, "t=6 h=4", "", NULL},
    {OP_BIAS_W, "h", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_ROUTE, "t", JOIN_SIDE, "t=6 e=8 k=2", "groups=1 pick=1 normalize=1 scale=1 sequence=6", NULL},
    {OP_ROUTE, "t", JOIN_SIDE, "t=6 e=8 k=2", "sigmoid=1 groups=4 pick=2 scale=2.5 sequence=6", NULL},
    {OP_ROUTE_I, "t", JOIN_SIDE, "t=6 e=8 k=2 s=1", "normalize=1 scale=1 balance=0.1 sequence=6", "t"},
    {OP_LOAD, "t", JOIN_SUM, "t=6 e=8 k=2 s=2", "sequence=3", "t"},
    {OP_BALANCE, "t", JOIN_SUM, "t=6 e=8 s=2", "scale=0.5 sequence=3", "t"},
    {OP_DISPATCH, "h", JOIN_SIDE, "t=4 h=6 k=2 m=8", "", NULL},
    {OP_COMBINE, "t", JOIN_SIDE, "t=4 h=6 k=2 m=8", "", NULL},
    {OP_COMBINE, "h", JOIN_SIDE, "t=4 h=6 k=2 m=8", "", NULL},
    {OP_COMBINE_W, "t", JOIN_SIDE, "t=4 h=6 k=2 m=8", "", NULL},
    {OP_COMBINE_W, "h", JOIN_SUM, "t=4 h=6 k=2 m=8", "", NULL},
    {OP_WEIGH_I, "m", JOIN_SIDE, "m=6 h=4", "", NULL},
    {OP_GROUPED_NT, "m blocks", JOIN_SIDE, "m=4 n=4 k=6 blocks=2", "experts=1", NULL},
    {OP_GROUPED_NN, "n", JOIN_SIDE, "m=8 n=4 k=6", "experts=2 blocks=2", NULL},
    {OP_GROUPED_BIAS_W, "h", JOIN_SIDE, "m=8 h=4", "experts=2 blocks=2", NULL},
    {OP_GROUPED_BIAS_W, "m blocks", JOIN_SUM, "m=4 h=4 blocks=2", "experts=1", NULL},
    {OP_GROUPED_TN, "k", JOIN_SIDE, "m=8 n=4 k=6", "experts=2 blocks=2", NULL},
    {OP_ROPE, "t", JOIN_SIDE, "t=8 a=8", "head=4 dims=4 sequence=8 theta=100 factor=1", "t"},
    {OP_ROPE, "a", JOIN_SIDE, "t=8 a=8", "head=4 dims=4 sequence=8 theta=100 factor=1", NULL},
    {OP_ATTENTION, "t", JOIN_SIDE, "t=8 heads=4 kv=2 head=4 u=3", "sequence=4 scale=0.5", NULL},
    {OP_ATTENTION, "heads kv", JOIN_SIDE, "t=8 heads=4 kv=2 head=4 u=3", "sequence=4 scale=0.5", NULL},
    {OP_ATTENTION_I, "t", JOIN_SIDE, "t=8 heads=4 kv=2 head=4 u=3", "sequence=4 scale=0.5", NULL},
    {OP_ATTENTION_I, "heads kv", JOIN_SIDE, "t=8 heads=4 kv=2 head=4 u=3", "sequence=4 scale=0.5", NULL},
    {OP_GELU, "h", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_GELU_I, "h", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_RELU, "t", JOIN_SIDE, "t=6 h=4", "power=1", NULL},
    {OP_RELU_I, "t", JOIN_SIDE, "t=6 h=4", "power=1", NULL},
    {OP_SWIGLU, "h", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_SWIGLU_I, "h", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_GEGLU, "t", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_GEGLU_I, "t", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_XENT_MAX, "v", JOIN_MAX, "t=6 v=12", "vocab=10", "v"},
    {OP_XENT_SUM, "v", JOIN_SUM, "t=6 v=12", "vocab=10", "v"},
    {OP_XENT_LOSS, "t", JOIN_SUM, "t=6", "scale=0.25 count=1", NULL},
    {OP_XENT_I, "v", JOIN_SIDE, "t=6 v=12", "vocab=10 scale=0.25", "v"},
    {OP_XENT_I, "t", JOIN_SIDE, "t=6 v=12", "vocab=10 scale=0.25", NULL},
    {OP_SOFTCAP_I, "h", JOIN_SIDE, "t=6 h=4", "cap=2", NULL},
    {OP_HEADNORM, "t", JOIN_SIDE, "t=6 heads=4 head=4", "eps=1e-5", NULL},
    {OP_HEADNORM, "heads", JOIN_SIDE, "t=6 heads=4 head=4", "eps=1e-5", NULL},
    {OP_HEADNORM_I, "heads", JOIN_SIDE, "t=6 heads=4 head=4", "", NULL},
    {OP_HEADNORM_W, "t", JOIN_SUM, "t=6 heads=4 head=4", "", NULL},
    {OP_HEADNORM_W, "heads", JOIN_SUM, "t=6 heads=4 head=4", "", NULL},
    {OP_SINK, "t", JOIN_SIDE, "t=6 heads=4 head=3", "", NULL},
    {OP_SINK, "heads", JOIN_SIDE, "t=6 heads=4 head=3", "", NULL},
    {OP_SINK_W, "t", JOIN_SUM, "t=6 heads=4 head=3", "", NULL},
    {OP_SINK_W, "heads", JOIN_SIDE, "t=6 heads=4 head=3", "", NULL},
    {OP_MLA_KEYS, "t", JOIN_SIDE, "t=6 heads=1 head=6 w=7 r=2 u=3", "", NULL},
    {OP_MLA_KEYS, "heads w", JOIN_SIDE, "t=6 heads=2 head=6 w=14 r=2 u=3", "", NULL},
    {OP_CONCAT, "t", JOIN_SIDE, "t=6 h=4 w=8", "", NULL},
    {OP_CONCAT_I, "t", JOIN_SIDE, "t=6 h=4 w=8", "", NULL},
    {OP_QUANTIZE, "t", JOIN_SIDE, "t=6 h=9 w=4", "", NULL},
    {OP_DEQUANTIZE, "t", JOIN_SIDE, "t=6 h=9 w=4", "", NULL},
    {OP_MLA_KEYS_I, "t", JOIN_SIDE, "t=6 heads=1 head=6 w=7 r=2 u=3", "", NULL},
    {OP_ATTENTION_PART, "t parts", JOIN_SIDE, PARTS, "kshift=8 shift=8 scale=0.5", NULL},
    {OP_ATTENTION_PART, "heads kv", JOIN_SIDE, PARTS, "kshift=8 shift=8 scale=0.5", NULL},
    {OP_ATTENTION_PART_I, "t parts", JOIN_SUM, PARTS, "kshift=8 shift=8 scale=0.5", NULL},
    {OP_ATTENTION_PART_I, "u kparts", JOIN_SUM, PARTS, "kshift=8 shift=8 scale=0.5 window=5", NULL},
    {OP_ATTENTION_PART_I, "heads kv", JOIN_SIDE, PARTS, "kshift=8 shift=8 scale=0.5", NULL},
    {OP_ATTENTION_MERGE, "t", JOIN_SIDE, "t=6 heads=2 head=3", "", NULL},
    {OP_ATTENTION_MERGE, "heads", JOIN_SIDE, "t=6 heads=2 head=3", "", NULL},
    {OP_SQNORM, "t", JOIN_SUM, "t=6 h=4", "count=1", NULL},
    {OP_ADAMW, "t", JOIN_SIDE, "t=6 h=4", "beta1=0.9 beta2=0.99 eps=1e-8 decay=0.1", NULL},
    {OP_ADAMW_AHEAD, "t", JOIN_SIDE, "t=6 h=4", "beta1=0.9 beta2=0.99 eps=1e-8 decay=0.1", NULL},
    {OP_SGD, "t", JOIN_SIDE, "t=6 h=4", "momentum=0.9 decay=0.1", NULL},
    /* the other names of the same tables; outputs that have the name lie side by side, others are sums */
    {OP_EMBED, "h", JOIN_SIDE, "t=6 v=10 h=4", "", NULL},
    {OP_EMBED_W, "h", JOIN_SIDE, "t=6 v=10 h=4", "", NULL},
    {OP_POSITION, "h", JOIN_SIDE, "t=8 h=4 s=4", "sequence=4", NULL},
    {OP_POSITION_W, "h", JOIN_SIDE, "t=8 h=4 s=4", "sequence=4", NULL},
    {OP_GELU, "t", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_GELU_I, "t", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_RELU, "h", JOIN_SIDE, "t=6 h=4", "power=2", NULL},
    {OP_RELU_I, "h", JOIN_SIDE, "t=6 h=4", "power=2", NULL},
    {OP_SWIGLU, "t", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_SWIGLU_I, "t", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_GEGLU, "h", JOIN_SIDE, "t=6 h=4", "", NULL},
    {OP_GEGLU_I, "h", JOIN_SIDE, "t=6 h=4", "tanh=1", NULL},
    {OP_XENT_MAX, "t", JOIN_SIDE, "t=6 v=12", "vocab=10", NULL},
    {OP_XENT_SUM, "t", JOIN_SIDE, "t=6 v=12", "vocab=10", NULL},
#define ELEMENT(op, attribute, value, function)                                                              \
    {OP_##op, "t", JOIN_SIDE, "t=6 h=4", #attribute "=" #value, NULL},                                       \
    {OP_##op, "h", JOIN_SIDE, "t=6 h=4", #attribute "=" #value, NULL},
#include "tests/kernels/elements.def"
    {OP_SOFTCAP_I, "t", JOIN_SIDE, "t=6 h=4", "cap=2", NULL},
    {OP_HEADNORM_I, "t", JOIN_SIDE, "t=6 heads=4 head=4", "", NULL},
    {OP_MLA_KEYS_I, "heads w", JOIN_SUM, "t=6 heads=2 head=6 w=14 r=2 u=3", "", NULL},
    {OP_GROUPED_NT, "n", JOIN_SIDE, "m=4 n=4 k=6 blocks=1", "experts=1", NULL},
    {OP_GROUPED_NT, "k", JOIN_SUM, "m=8 n=4 k=6", "experts=2 blocks=2", NULL},
    {OP_GROUPED_NN, "k", JOIN_SUM, "m=8 n=4 k=6", "experts=1 blocks=2", NULL},
    {OP_GROUPED_TN, "n", JOIN_SIDE, "m=8 n=4 k=6", "experts=1 blocks=2", NULL},
    {OP_WEIGH_I, "h", JOIN_SUM, "m=6 h=4", "", NULL},
    {OP_SQNORM, "h", JOIN_SUM, "t=6 h=4", "count=1", NULL},
    {OP_ADAMW, "h", JOIN_SIDE, "t=6 h=4", "beta1=0.9 beta2=0.99 eps=1e-8 decay=0.1", NULL},
    {OP_ADAMW_AHEAD, "h", JOIN_SIDE, "t=6 h=4", "beta1=0.9 beta2=0.99 eps=1e-8 decay=0.1", NULL},
    {OP_SGD, "h", JOIN_SIDE, "t=6 h=4", "momentum=0.9 decay=0.1", NULL},
};

/* names of shapes that no rule splits: rows and columns that an instruction needs whole */
static const struct {
    enum op op; /* NOPS: of every one */
    const char *name;
} wholes[] = {
    {NOPS, "head"}, {NOPS, "s"}, {NOPS, "e"}, {NOPS, "experts"}, {NOPS, "blocks"}, {NOPS, "u"},
    {OP_RMSNORM, "h"}, {OP_RMSNORM_I, "h"}, {OP_RMSNORM_W, "h"}, {OP_LAYERNORM, "h"}, {OP_LAYERNORM_I, "h"},
    {OP_LAYERNORM_W, "h"}, {OP_CONCAT, "h"}, {OP_CONCAT, "w"}, {OP_CONCAT_I, "h"}, {OP_CONCAT_I, "w"},
    {OP_QUANTIZE, "h"}, {OP_QUANTIZE, "w"}, {OP_DEQUANTIZE, "h"}, {OP_DEQUANTIZE, "w"},
    {OP_MLA_KEYS, "r"}, {OP_MLA_KEYS_I, "r"}, {OP_ROUTE, "k"}, {OP_ROUTE_I, "k"}, {OP_LOAD, "k"},
    {OP_DISPATCH, "k"}, {OP_DISPATCH, "t"}, {OP_DISPATCH, "m"}, {OP_COMBINE, "k"}, {OP_COMBINE, "m"},
    {OP_COMBINE_W, "k"}, {OP_COMBINE_W, "m"}, {OP_GROUPED_NN, "m"}, {OP_GROUPED_TN, "m"},
    {OP_ATTENTION_PART, "u"}, {OP_ATTENTION_PART, "w"}, {OP_ATTENTION_PART_I, "w"},
};

#define ROOM 512
struct operands {
    uint32_t rows[ISA_MAX_OPERANDS], cols[ISA_MAX_OPERANDS];
    _Alignas(64) double data[ISA_MAX_OPERANDS][ROOM]; /* any dtype fits */
};

static void run_kernel(enum op op, struct kernel_args *k)
{
    static void (*const kernels[])(struct kernel_args *) = {
#define KERNEL_ENTRY_MATMUL(name) cpu_##name
#define KERNEL_ENTRY_ATTENTION(name) cpu_##name
#define KERNEL_ENTRY_STREAM(name) cpu_##name
#define KERNEL_ENTRY_HOST(name) cpu_##name
#define KERNEL_ENTRY_P2P(name) NULL
#define KERNEL_ENTRY_COLLECTIVE(name) NULL
#define INSN(name, queue, unit, operands, attributes, meaning) KERNEL_ENTRY_##unit(name),
#include "runtime/isa.def"
    };
    k->scratch = aligned_alloc(64, (kernel_scratch_floats(op, k) + 64) / 16 * 64 + 64);
    kernels[op](k);
    free(k->scratch);
}

/* value of "name=..." in a list; NAN if absent */
static double setting(const char *list, const char *name, size_t n)
{
    for (const char *p = list; *p; p += strspn(p, " ")) {
        if (!strncmp(p, name, n) && p[n] == '=')
            return strtod(p + n + 1, NULL);
        p += strcspn(p, " ");
    }
    return (double)NAN;
}

static bool split_by(const struct rule_case *c, const char *name, size_t n)
{
    const char *p = strstr(c->split, name);
    (void)n;
    return p && strlen(p) >= n && (p[n] == 0 || p[n] == ' ') && (p == c->split || p[-1] == ' ');
}

/* size of "4", "t" or "heads*head"; part: halves of the split names; *cut: does it have one */
static uint32_t size_of(const struct rule_case *c, const char *shape, bool part, bool *cut)
{
    uint32_t size = 1;
    *cut = false;
    for (const char *p = shape; *p;) {
        size_t n = strcspn(p, "*");
        char name[32] = "";
        memcpy(name, p, n);
        double v = name[0] >= '0' && name[0] <= '9' ? strtod(name, NULL) : setting(c->sizes, name, n);
        bool mine = split_by(c, name, n);
        size *= (uint32_t)v / (part && mine ? 2 : 1);
        *cut |= mine;
        p += n + (p[n] == '*');
    }
    return size;
}

static bool absent(const struct rule_case *c, const struct isa_operand *o)
{
    return o->optional && !strcmp(c->attrs, "no-bias");
}

static enum dtype dtype_of(char class)
{
    return class == 'I' ? DTYPE_I32 : class == 'D' ? DTYPE_F64 : DTYPE_F32;
}

static void set_element(struct operands *x, size_t k, enum dtype d, size_t i, double v)
{
    if (d == DTYPE_I32)
        ((int32_t *)(void *)x->data[k])[i] = (int32_t)v;
    else if (d == DTYPE_F64)
        x->data[k][i] = v;
    else
        ((float *)(void *)x->data[k])[i] = (float)v;
}

static double element(const struct operands *x, size_t k, enum dtype d, size_t i)
{
    if (d == DTYPE_I32)
        return ((const int32_t *)(const void *)x->data[k])[i];
    return d == DTYPE_F64 ? x->data[k][i] : (double)((const float *)(const void *)x->data[k])[i];
}

static void fill(const struct rule_case *c, struct operands *x, uint64_t *random)
{
    const struct isa_info *info = isa_info(c->op);
    bool cut;
    for (size_t k = 0; k < info->noperands; k++) {
        enum dtype d = dtype_of(info->operand[k].dtype);
        x->rows[k] = size_of(c, info->operand[k].rows, false, &cut);
        x->cols[k] = size_of(c, info->operand[k].cols, false, &cut);
        for (size_t i = 0; i < (size_t)x->rows[k] * x->cols[k]; i++)
            set_element(x, k, d, i,
                        d == DTYPE_I32 ? random_below(random, 10) : 0.1 + random_below(random, 1000) * 1e-3);
    }
}

/* what the places of the second of two ranks' rows are more than those of the first */
static double part_place(const struct rule_case *c, const char *name)
{
    bool keys = name[0] == 'k';
    double sequence = setting(c->sizes, "sequence", strlen("sequence"));
    if (!split_by(c, keys ? "kparts" : "parts", strlen(keys ? "kparts" : "parts")))
        return 0;
    return !strcmp(name + keys, "first") ? sequence / 2 : !strcmp(name + keys, "shift") ? -sequence : 0;
}

/* the operands' part 0 or 1, or with -1 all, run; outputs copied into `out`; operand `onto` >= 0 takes the
 * place of `at` */
static void run_part_onto(const struct rule_case *c, const struct operands *x, int part, struct operands *out,
                          int onto, int at)
{
    const struct isa_info *info = isa_info(c->op);
    struct kernel_args k = {0};
    bool parted = part >= 0, cut;
    for (size_t o = 0; o < info->noperands; o++) {
        enum dtype d = dtype_of(info->operand[o].dtype);
        /* zeros where an output's rows stay unspecified: they add up to zeros */
        bool row_cut, col_cut, written = info->operand[o].mark == MARK_WRITE || info->operand[o].mark == MARK_ADD;
        uint32_t rows = out->rows[o] = size_of(c, info->operand[o].rows, parted, &row_cut);
        uint32_t cols = out->cols[o] = size_of(c, info->operand[o].cols, parted, &col_cut);
        uint32_t row = parted && row_cut ? (uint32_t)part * rows : 0,
                 col = parted && col_cut ? (uint32_t)part * cols : 0;
        for (uint32_t i = 0; i < rows; i++)
            for (uint32_t j = 0; j < cols; j++)
                set_element(out, o, d, (size_t)i * cols + j,
                            written ? 0 : element(x, o, d, (size_t)(row + i) * x->cols[o] + col + j));
        if (!absent(c, &info->operand[o]))
            k.operand[o] = (struct view){out->data[(int)o == onto ? at : (int)o], d, false, rows, cols, cols};
    }
    for (size_t a = 0; a < info->nattrs; a++) {
        const char *name = info->attr[a].name;
        double v = setting(c->attrs, name, strlen(name));
        if (isnan(v))
            v = setting(c->sizes, name, strlen(name));
        if (isnan(v))
            v = 0;
        else if (parted && split_by(c, name, strlen(name)))
            v /= 2;
        if (!strcmp(name, "start") && c->start && parted && split_by(c, c->start, strlen(c->start)))
            v += part * (double)size_of(c, c->start, true, &cut);
        v += part > 0 ? part_place(c, name) : 0;
        if (info->attr[a].kind == ATTR_REAL)
            k.attr[a].f = v;
        else
            k.attr[a].i = (int64_t)v;
    }
    run_kernel(c->op, &k);
}

static void run_part(const struct rule_case *c, const struct operands *x, int part, struct operands *out)
{
    run_part_onto(c, x, part, out, -1, -1);
}

static double joined(const struct rule_case *c, const struct operands part[2], size_t o, uint32_t i,
                     uint32_t j)
{
    const struct isa_operand *info = &isa_info(c->op)->operand[o];
    enum dtype d = dtype_of(info->dtype);
    bool row_cut, col_cut;
    size_of(c, info->rows, true, &row_cut);
    size_of(c, info->cols, true, &col_cut);
    uint32_t rows = part[0].rows[o], cols = part[0].cols[o];
    if (row_cut || col_cut) {
        const struct operands *p = &part[row_cut ? i / rows : j / cols];
        return element(p, o, d, (size_t)(row_cut ? i % rows : i) * cols + (col_cut ? j % cols : j));
    }
    double x = element(&part[0], o, d, (size_t)i * cols + j),
           y = element(&part[1], o, d, (size_t)i * cols + j);
    return c->join == JOIN_MAX ? fmax(x, y) : x + y;
}

static bool holds(const struct rule_case *c)
{
    const struct isa_info *info = isa_info(c->op);
    struct operands *x = calloc(4, sizeof *x), *whole = x + 1, *part = x + 2;
    uint64_t random = c->op + 1u;
    bool same = true;
    fill(c, x, &random);
    run_part(c, x, -1, whole);
    run_part(c, x, 0, &part[0]);
    run_part(c, x, 1, &part[1]);
    for (size_t o = 0; o < info->noperands; o++) {
        if (info->operand[o].mark == MARK_READ || absent(c, &info->operand[o]))
            continue;
        for (uint32_t i = 0; i < whole->rows[o]; i++)
            for (uint32_t j = 0; j < whole->cols[o]; j++) {
                double want =
                    element(whole, o, dtype_of(info->operand[o].dtype), (size_t)i * whole->cols[o] + j);
                double have = joined(c, part, o, i, j);
                same = same && fabs(have - want) <= 1e-5 * (1 + fabs(want));
            }
    }
    free(x);
    return same;
}

static void test_split(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool fine = holds(&cases[i]);
        CU_ASSERT(fine);
        if (!fine)
            printf("\n    %s split by %s", isa_info(cases[i].op)->name, cases[i].split);
    }
}

/* ---- in place ---- */

/* Kernels that finish with an element before they write it: their output may lie where an input of its shape does. */
static const enum op in_place[] = {OP_ADD,       OP_COPY,     OP_ROPE,      OP_XENT_I, OP_GELU,
                                   OP_GELU_I,    OP_RELU,     OP_RELU_I,    OP_SWIGLU, OP_SWIGLU_I,
                                   OP_GEGLU,     OP_GEGLU_I,  OP_POSITION,  OP_SCALE,  OP_SOFTCAP,
                                   OP_SOFTCAP_I, OP_HEADNORM, OP_HEADNORM_I, OP_SINK};

/* does property 4 accept the instruction with operand y where x is? */
static bool accepted(const struct rule_case *c, const struct operands *shape, size_t y, size_t x)
{
    const struct isa_info *info = isa_info(c->op);
    struct arena *a = arena_new();
    struct program *p = program_new(0, 1);
    uint32_t i = program_insn(p, c->op);
    for (size_t k = 0; k < info->noperands; k++) {
        struct buffer b = {.name = "x", .kind = BUFFER_STEP, .ring = NONE, .bytes = 8 * ROOM, .stride = 8 * ROOM,
                           .offset = 8 * ROOM * k, .bucket = NONE, .shard_slot = NONE};
        uint32_t buffer = program_buffer(p, &b);
        p->operands[p->insns[i].operand + k] =
            (struct operand){.buffer = k == y ? (uint32_t)x : buffer,
                             .dtype = (uint8_t)dtype_of(info->operand[k].dtype),
                             .mark = info->operand[k].mark == MARK_READ ? MARK_READ : MARK_WRITE,
                             .slot = UINT16_MAX,
                             .rows = shape->rows[k],
                             .cols = shape->cols[k],
                             .ld = shape->cols[k]};
    }
    const uint32_t size[NAXES] = {1, 1, 1, 1};
    const enum axis order[NAXES] = {AXIS_TP, AXIS_CP, AXIS_DP, AXIS_PP};
    struct plan plan = {.nroles = 1, .train = &p, .mesh = mesh_new(size, order)};
    struct verdict v = {0};
    verify_race(a, &plan, &v);
    program_free(p);
    arena_free(a);
    return !v.nviolations;
}

/* What may be in place gives the same numbers there, bit for bit; nothing else may. */
static void test_in_place(void)
{
    bool once[ARRAY_LEN(in_place)] = {false};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct rule_case *c = &cases[i];
        const struct isa_info *info = isa_info(c->op);
        struct operands *x = calloc(3, sizeof *x), *apart = x + 1, *onto = x + 2;
        uint64_t random = c->op + 1u;
        size_t may = 0;
        while (may < ARRAY_LEN(in_place) && in_place[may] != c->op)
            may++;
        fill(c, x, &random);
        run_part(c, x, -1, apart);
        for (size_t y = 0; y < info->noperands; y++)
            for (size_t r = 0; r < info->noperands; r++) {
                enum dtype d = dtype_of(info->operand[y].dtype);
                if (info->operand[y].mark == MARK_READ || info->operand[r].mark != MARK_READ ||
                    absent(c, &info->operand[y]) || absent(c, &info->operand[r]) ||
                    dtype_of(info->operand[r].dtype) != d || x->rows[r] != x->rows[y] ||
                    x->cols[r] != x->cols[y])
                    continue;
                bool fine = accepted(c, x, y, r);
                CU_ASSERT_EQUAL(fine, may < ARRAY_LEN(in_place));
                if (fine != (may < ARRAY_LEN(in_place)))
                    printf("\n    %s: %s where %s is", info->name, info->operand[y].name, info->operand[r].name);
                if (!fine)
                    continue;
                once[may] = true;
                run_part_onto(c, x, -1, onto, (int)y, (int)r);
                for (uint32_t e = 0; e < x->rows[y] * x->cols[y]; e++)
                    CU_ASSERT_EQUAL(element(onto, r, d, e), element(apart, y, d, e));
            }
        free(x);
    }
    for (size_t i = 0; i < ARRAY_LEN(in_place); i++)
        CU_ASSERT(once[i]);
}

/* every row that computes has a case */
static void test_all(void)
{
    for (enum op op = 0; op < NOPS; op++) {
        bool found = op == OP_ARRANGE || op == OP_ARRANGE_ONCE || op == OP_BIAS_MOVE || /* of a whole: no parts */
                     op == OP_TOKENS || op == OP_TOKENS_AHEAD || op == OP_FILL || op == OP_CLIP || op == OP_CLIP_SCALED || op == OP_SEAM ||
                     op == OP_COLUMNS_SPLIT || op == OP_COLUMNS_JOIN || /* parts of one are all of the other */
                     isa_info(op)->unit == UNIT_P2P ||
                     isa_info(op)->unit == UNIT_COLLECTIVE;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            found = found || cases[i].op == op;
        CU_ASSERT(found);
        if (!found)
            printf("\n    %s has no case in test_rules.c or elements.def", isa_info(op)->name);
    }
}

static bool whole(enum op op, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(wholes); i++)
        if ((wholes[i].op == NOPS || wholes[i].op == op) && !strcmp(wholes[i].name, name))
            return true;
    return false;
}

/* is there a case that splits this name? */
static bool split(enum op op, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (cases[i].op == op && split_by(&cases[i], name, strlen(name)))
            return true;
    return false;
}

/* every name of a shape is split by a case, or needed whole */
static void test_names(void)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct isa_info *info = isa_info(cases[i].op);
        for (size_t k = 0; k < 2 * info->noperands; k++)
            for (const char *at = k % 2 ? info->operand[k / 2].cols : info->operand[k / 2].rows; *at;) {
                char name[32] = "";
                size_t n = strcspn(at, "*");
                memcpy(name, at, n);
                at += n + (at[n] == '*');
                bool found = (name[0] >= '0' && name[0] <= '9') || whole(cases[i].op, name) || split(cases[i].op, name);
                CU_ASSERT(found);
                if (!found)
                    printf("\n    no case splits %s by %s", info->name, name);
            }
    }
}

void suite_verify_rules(void);
void suite_verify_rules(void)
{
    CU_pSuite s = CU_add_suite("verify_rules", NULL, NULL);
    CU_add_test(s, "parts of matrices give parts, sums and maxima", test_split);
    CU_add_test(s, "every name of a shape is split or needed whole", test_names);
    CU_add_test(s, "what may be in place is right there", test_in_place);
    CU_add_test(s, "every row that computes has a case", test_all);
}
