#include "runtime/calibrate_items.h"

#include <string.h>

/* ---- what is measured ---- */

static void add(struct calibrate_list *l, struct calibrate_item x)
{
    if (l->nitems < CALIBRATE_MOST_ITEMS)
        l->items[l->nitems++] = x;
}

void calibrate_add(struct calibrate_list *l, enum dtype dtype, bool eight)
{
    static const enum op streams[] = {OP_ADD,       OP_COPY,      OP_FILL,        OP_RMSNORM,     OP_RMSNORM_I,
                                      OP_RMSNORM_W, OP_LAYERNORM, OP_LAYERNORM_I, OP_LAYERNORM_W, OP_BIAS_W,
                                      OP_ROPE,      OP_GELU,      OP_GELU_I,      OP_RELU,        OP_RELU_I,
                                      OP_SWIGLU,    OP_SWIGLU_I,  OP_GEGLU,       OP_GEGLU_I,     OP_XENT_MAX,
                                      OP_XENT_SUM,  OP_XENT_I,    OP_SQNORM,      OP_ADAMW,       OP_SGD};
    const struct calibrate_sizes *s = &l->sizes;
    for (const uint32_t *m = s->m; *m; m++)
        for (const uint32_t *n = s->n; *n; n++)
            for (const uint32_t *k = s->k; *k; k++)
                add(l, (struct calibrate_item){CALIBRATE_PRODUCT, OP_MATMUL_NT, dtype, eight, *m, *n, *k});
    for (const uint32_t *places = s->places; *places && !eight; places++)
        for (const uint32_t *head = s->heads; *head; head++)
            for (int back = 0; back < 2; back++)
                add(l, (struct calibrate_item){back ? CALIBRATE_ATTENTION_BACK : CALIBRATE_ATTENTION, OP_ATTENTION,
                                               dtype, false, *places, *head, 0});
    for (size_t i = 0; i < sizeof streams / sizeof *streams && !eight; i++)
        for (const uint32_t *rows = s->rows; *rows; rows++)
            add(l, (struct calibrate_item){CALIBRATE_STREAM, streams[i], dtype, false, *rows, 0, 0});
}

/* ---- calls ---- */

/* a name of isa.def's shapes; products of names, and 1 */
static uint32_t extent(const struct calibrate_sizes *s, const char *name, uint32_t rows)
{
    const struct {
        const char *name;
        uint32_t n;
    } known[] = {{"h", s->width}, {"a", s->width}, {"v", s->vocab}, {"1", 1}, {"2", 2}, {"8", 8}};
    uint32_t n = 1;
    if (!strcmp(name, "t"))
        return rows;
    for (const char *at = name; *at;) {
        size_t length = strcspn(at, "*");
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i].name) == length && !strncmp(at, known[i].name, length))
                n *= known[i].n;
        at += length + (at[length] == '*');
    }
    return n;
}

static enum dtype dtype_of(char letter, enum dtype dtype)
{
    return letter == 'F' ? DTYPE_F32 : letter == 'I' ? DTYPE_I32 : letter == 'D' ? DTYPE_F64 : dtype;
}

/* optional operands are there but for those that only some plans have */
static bool has_operand(const struct calibrate_item *x, uint32_t i)
{
    bool copy = x->op == OP_ADAMW && x->dtype == DTYPE_BF16 && i == OPND(ADAMW, copy);
    return !isa_info(x->op)->operand[i].optional || copy || (x->op == OP_ADD && i == OPND(ADD, b));
}

/* moments and gradients are fp32 by default */
static enum dtype operand_dtype(const struct calibrate_item *x, uint32_t i)
{
    bool state = (x->op == OP_ADAMW && i != OPND(ADAMW, copy)) || x->op == OP_SGD;
    return dtype_of(isa_info(x->op)->operand[i].dtype, state ? DTYPE_F32 : x->dtype);
}

static void set_stream_attributes(const struct calibrate_sizes *s, const struct calibrate_item *x,
                                  struct kernel_args *k)
{
    if (x->op == OP_ROPE) {
        k->attr[ATTR(ROPE, head)].i = k->attr[ATTR(ROPE, dims)].i = s->head;
        k->attr[ATTR(ROPE, sequence)].i = x->m;
        k->attr[ATTR(ROPE, theta)].f = 1e4;
    }
    if (x->op == OP_RELU)
        k->attr[ATTR(RELU, power)].i = 1;
    if (x->op == OP_RELU_I)
        k->attr[ATTR(RELU_I, power)].i = 1;
    if (x->op == OP_XENT_MAX)
        k->attr[ATTR(XENT_MAX, vocab)].i = s->vocab;
    if (x->op == OP_XENT_SUM)
        k->attr[ATTR(XENT_SUM, vocab)].i = s->vocab;
    if (x->op == OP_XENT_I)
        k->attr[ATTR(XENT_I, vocab)].i = s->vocab;
    if (x->op == OP_SQNORM)
        k->attr[ATTR(SQNORM, count)].i = 1;
}

static void fill_stream(const struct calibrate_sizes *s, const struct calibrate_item *x, calibrate_take *take,
                        void *context, struct kernel_args *k)
{
    const struct isa_info *info = isa_info(x->op);
    for (uint32_t i = 0; i < info->noperands; i++) {
        const struct isa_operand *o = &info->operand[i];
        if (has_operand(x, i))
            k->operand[i] = take(context, o->mark == MARK_WRITE || o->mark == MARK_ADD, operand_dtype(x, i),
                                 extent(s, o->rows, x->m), extent(s, o->cols, x->m));
    }
    set_stream_attributes(s, x, k);
}

static uint32_t tokens_of(const struct calibrate_sizes *s, const struct calibrate_item *x)
{
    return x->m > s->tokens ? x->m : s->tokens / x->m * x->m;
}

static enum op fill_attention(const struct calibrate_sizes *s, const struct calibrate_item *x, calibrate_take *take,
                              void *context, struct kernel_args *k)
{
    bool back = x->kind == CALIBRATE_ATTENTION_BACK;
    const struct isa_info *info = isa_info(back ? OP_ATTENTION_I : OP_ATTENTION);
    for (uint32_t i = 0; i < info->noperands; i++) {
        const char *name = info->operand[i].name;
        bool keys = !strcmp(name, "k") || !strcmp(name, "v") || !strcmp(name, "dk") || !strcmp(name, "dv");
        bool lse = !strcmp(name, "lse");
        k->operand[i] = take(context, info->operand[i].mark != MARK_READ, lse ? DTYPE_F32 : x->dtype, tokens_of(s, x),
                             lse ? s->nheads : (keys ? s->nkey_heads : s->nheads) * x->n);
    }
#define SET(op)                                                                                                        \
    k->attr[ATTR(op, heads)].i = s->nheads, k->attr[ATTR(op, kv)].i = s->nkey_heads, k->attr[ATTR(op, head)].i = x->n, \
                     k->attr[ATTR(op, sequence)].i = x->m, k->attr[ATTR(op, scale)].f = 0.088
    if (back)
        SET(ATTENTION_I);
    else
        SET(ATTENTION);
#undef SET
    return back ? OP_ATTENTION_I : OP_ATTENTION;
}

static void fill_product(const struct calibrate_item *x, calibrate_take *take, void *context, struct kernel_args k[3])
{
    k[0].operand[0] = k[1].operand[0] = take(context, true, x->dtype, x->m, x->n);
    k[2].operand[0] = take(context, true, DTYPE_F32, x->m, x->n);
    k[2].operand[0].add = true;
    k[0].operand[1] = k[1].operand[1] = take(context, false, x->dtype, x->m, x->k);
    k[0].operand[2] = take(context, false, x->dtype, x->n, x->k);
    k[1].operand[2] = k[2].operand[2] = take(context, false, x->dtype, x->k, x->n);
    k[2].operand[1] = take(context, false, x->dtype, x->k, x->m);
    k[0].attr[ATTR(MATMUL_NT, fp8)].i = k[1].attr[ATTR(MATMUL_NN, fp8)].i = k[2].attr[ATTR(MATMUL_TN, fp8)]
                                                                                .i = x->eight;
}

unsigned calibrate_calls(const struct calibrate_list *l, const struct calibrate_item *x, calibrate_take *take,
                         void *context, enum op ops[CALIBRATE_MOST_CALLS], struct kernel_args k[CALIBRATE_MOST_CALLS])
{
    memset(k, 0, CALIBRATE_MOST_CALLS * sizeof *k);
    if (x->kind == CALIBRATE_PRODUCT) {
        ops[0] = OP_MATMUL_NT, ops[1] = OP_MATMUL_NN, ops[2] = OP_MATMUL_TN;
        fill_product(x, take, context, k);
        return 3;
    }
    if (x->kind == CALIBRATE_STREAM) {
        ops[0] = x->op;
        fill_stream(&l->sizes, x, take, context, &k[0]);
    } else
        ops[0] = fill_attention(&l->sizes, x, take, context, &k[0]);
    return 1;
}

/* ---- the elements ---- */

/* as llmc counts them: of attention half of the scores, of every head twice its width, for backward 2.5 times as many
 */
double calibrate_flop(const struct calibrate_list *l, const struct calibrate_item *x)
{
    if (x->kind == CALIBRATE_STREAM)
        return 0;
    if (x->kind == CALIBRATE_PRODUCT)
        return 6.0 * x->m * x->n * x->k;
    return 2.0 * tokens_of(&l->sizes, x) * (x->m + 1) * l->sizes.nheads * x->n *
           (x->kind == CALIBRATE_ATTENTION_BACK ? 2.5 : 1);
}

double calibrate_stream_bytes(const struct calibrate_list *l, const struct calibrate_item *x)
{
    const struct isa_info *info = isa_info(x->op);
    double bytes = 0;
    for (uint32_t i = 0; i < info->noperands && x->kind == CALIBRATE_STREAM; i++) {
        const struct isa_operand *o = &info->operand[i];
        if (has_operand(x, i))
            bytes += (o->mark == MARK_UPDATE ? 2.0 : 1.0) * extent(&l->sizes, o->rows, x->m) *
                     extent(&l->sizes, o->cols, x->m) * isa_dtype_bytes(operand_dtype(x, i));
    }
    return bytes;
}

struct printer {
    const struct calibrate_list *list;
    enum dtype dtype;
    bool eight;
    const double *seconds;
    int indent;
    FILE *out;
};

static const char *word(const struct printer *p)
{
    return p->eight ? "fp8" : p->dtype == DTYPE_BF16 ? "bf16" : "fp32";
}

/* the next measured item of that kind from i on; the list's end if there is none */
static uint32_t next(const struct printer *p, enum calibrate_kind kind, uint32_t i)
{
    const struct calibrate_item *x = p->list->items;
    while (i < p->list->nitems &&
           (x[i].kind != kind || x[i].dtype != p->dtype || x[i].eight != p->eight || !(p->seconds[i] > 0)))
        i++;
    return i;
}

static void print_products(const struct printer *p)
{
    uint32_t i = next(p, CALIBRATE_PRODUCT, 0), n = p->list->nitems;
    if (i == n)
        return;
    fprintf(p->out, "%*s<gemm dtype=\"%s\">\n", p->indent, "", word(p));
    for (; i < n; i = next(p, CALIBRATE_PRODUCT, i + 1)) {
        const struct calibrate_item *x = &p->list->items[i];
        fprintf(p->out, "%*s<point m=\"%u\" n=\"%u\" k=\"%u\" rate=\"%.4gGFLOP/s\"/>\n", p->indent + 2, "", x->m, x->n,
                x->k, calibrate_flop(p->list, x) / p->seconds[i] * 1e-9);
    }
    fprintf(p->out, "%*s</gemm>\n", p->indent, "");
}

/* of every shape forward, and backward right behind it */
static void print_attention(const struct printer *p)
{
    uint32_t i = next(p, CALIBRATE_ATTENTION, 0), n = p->list->nitems;
    bool any = false;
    for (; i + 1 < n; i = next(p, CALIBRATE_ATTENTION, i + 1)) {
        const struct calibrate_item *x = &p->list->items[i];
        if (!(p->seconds[i + 1] > 0))
            continue;
        if (!any)
            fprintf(p->out, "%*s<attention dtype=\"%s\">\n", p->indent, "", word(p));
        any = true;
        fprintf(p->out, "%*s<point sequence=\"%u\" head=\"%u\" forward=\"%.4gGFLOP/s\" backward=\"%.4gGFLOP/s\"/>\n",
                p->indent + 2, "", x->m, x->n, calibrate_flop(p->list, x) / p->seconds[i] * 1e-9,
                calibrate_flop(p->list, x + 1) / p->seconds[i + 1] * 1e-9);
    }
    if (any)
        fprintf(p->out, "%*s</attention>\n", p->indent, "");
}

static void print_streams(const struct printer *p)
{
    uint32_t n = p->list->nitems;
    enum op open = NOPS;
    for (uint32_t i = next(p, CALIBRATE_STREAM, 0); i < n; i = next(p, CALIBRATE_STREAM, i + 1)) {
        const struct calibrate_item *x = &p->list->items[i];
        if (x->op != open && open != NOPS)
            fprintf(p->out, "%*s</kernel>\n", p->indent, "");
        if (x->op != open)
            fprintf(p->out, "%*s<kernel op=\"%s\" dtype=\"%s\">\n", p->indent, "", isa_info(x->op)->name, word(p));
        open = x->op;
        fprintf(p->out, "%*s<point size=\"%.0fB\" time=\"%.4gus\"/>\n", p->indent + 2, "",
                calibrate_stream_bytes(p->list, x), p->seconds[i] * 1e6);
    }
    if (open != NOPS)
        fprintf(p->out, "%*s</kernel>\n", p->indent, "");
}

void calibrate_print(const struct calibrate_list *l, enum dtype dtype, bool eight, const double *seconds, int indent,
                     FILE *out)
{
    const struct printer p = {l, dtype, eight, seconds, indent, out};
    print_products(&p);
    print_attention(&p);
    print_streams(&p);
}
