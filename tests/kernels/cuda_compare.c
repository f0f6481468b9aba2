/* See cuda_compare.h.  Operands are allocated to the byte, so that a sanitizer sees what a kernel reads beyond them; gaps
 * between rows hold a pattern that must survive. */

#include "tests/kernels/cuda_compare.h"
#include "kernels/cpu/rows.h"
#include "tests/emulated/host.h"
#include "runtime/device.h"

#include <stdio.h>
#include <stdlib.h>

enum { PATTERN = 0xa5 };

static double number(const struct cuda_case *c, const char *name, size_t n)
{
    for (uint32_t i = 0; i < 24 && c->number[i].name; i++)
        if (strlen(c->number[i].name) == n && strncmp(c->number[i].name, name, n) == 0)
            return c->number[i].value;
    return 0;
}

static uint32_t shape(const struct cuda_case *c, const char *text)
{
    const char *star = strchr(text, '*');
    if (text[0] >= '0' && text[0] <= '9')
        return (uint32_t)atoi(text);
    if (!star)
        return (uint32_t)number(c, text, strlen(text));
    return (uint32_t)(number(c, text, (size_t)(star - text)) * number(c, star + 1, strlen(star + 1)));
}

static enum dtype dtype_of(const struct cuda_case *c, char letter)
{
    if (letter == 'C')
        return c->c;
    if (letter == 'G' || letter == 'A')
        return c->g;
    return letter == 'I' ? DTYPE_I32 : letter == 'D' ? DTYPE_F64 : DTYPE_F32;
}

static size_t view_bytes(const struct view *v)
{
    return ((size_t)(v->rows - 1) * v->ld + v->cols) * isa_dtype_bytes(v->dtype);
}

static double element(const struct view *v, uint32_t i, uint32_t j)
{
    size_t at = (size_t)i * v->ld + j;
    if (v->dtype == DTYPE_F32)
        return (double)((const float *)v->data)[at];
    if (v->dtype == DTYPE_BF16)
        return (double)bf16_load(((const uint16_t *)v->data)[at]);
    return v->dtype == DTYPE_F64 ? ((const double *)v->data)[at] : ((const int32_t *)v->data)[at];
}

static void element_set(const struct view *v, uint32_t i, uint32_t j, double x)
{
    size_t at = (size_t)i * v->ld + j;
    if (v->dtype == DTYPE_F32)
        ((float *)v->data)[at] = (float)x;
    else if (v->dtype == DTYPE_BF16)
        ((uint16_t *)v->data)[at] = bf16_round((float)x);
    else if (v->dtype == DTYPE_F64)
        ((double *)v->data)[at] = x;
    else
        ((int32_t *)v->data)[at] = (int32_t)x;
}

static void operand_make(const struct cuda_case *c, uint32_t i, struct view *v, uint64_t *random)
{
    const struct isa_operand *o = &isa_info(c->op)->operand[i];
    v->dtype = dtype_of(c, o->dtype);
    v->rows = shape(c, o->rows);
    v->cols = shape(c, o->cols);
    v->ld = v->cols + (c->unaligned ? 3 : 8);
    v->add = o->mark == MARK_ADD && c->add;
    size_t bytes = view_bytes(v);
    v->data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(v->data, PATTERN, bytes);
    for (uint32_t r = 0; r < v->rows; r++)
        for (uint32_t s = 0; s < v->cols; s++) {
            *random = *random * 6364136223846793005u + 1442695040888963407u;
            element_set(v, r, s, v->dtype == DTYPE_I32 ? 0 : (double)(*random >> 11) * 0x1p-52 - 1);
        }
}

static void args_make(const struct cuda_case *c, struct kernel_args *k, cuda_case_prepare *prepare)
{
    const struct isa_info *info = isa_info(c->op);
    uint64_t random = 99 + (uint64_t)c->op;
    memset(k, 0, sizeof *k);
    for (uint32_t i = 0; i < info->nattrs; i++) {
        double x = number(c, info->attr[i].name, strlen(info->attr[i].name));
        if (info->attr[i].kind == ATTR_REAL)
            k->attr[i].f = x;
        else
            k->attr[i].i = (int64_t)x;
    }
    for (uint32_t i = 0; i < info->noperands; i++)
        if (!(c->absent >> i & 1))
            operand_make(c, i, &k->operand[i], &random);
    if (prepare)
        prepare(c, k);
}

void cuda_case_forward(const struct cuda_case *c, struct kernel_args *k)
{
    struct kernel_args f = {.scratch = NULL};
    bool part = c->op == OP_ATTENTION_PART_I;
    enum op op = part ? OP_ATTENTION_PART : OP_ATTENTION;
    memcpy(f.attr, k->attr, sizeof f.attr);
    if (part) {
        f.operand[OPND(ATTENTION_PART, q)] = k->operand[OPND(ATTENTION_PART_I, q)];
        f.operand[OPND(ATTENTION_PART, k)] = k->operand[OPND(ATTENTION_PART_I, k)];
        f.operand[OPND(ATTENTION_PART, v)] = k->operand[OPND(ATTENTION_PART_I, v)];
        f.operand[OPND(ATTENTION_PART, o)] = k->operand[OPND(ATTENTION_PART_I, o)];
        f.operand[OPND(ATTENTION_PART, lse)] = k->operand[OPND(ATTENTION_PART_I, lse)];
    } else {
        f.operand[OPND(ATTENTION, q)] = k->operand[OPND(ATTENTION_I, q)];
        f.operand[OPND(ATTENTION, k)] = k->operand[OPND(ATTENTION_I, k)];
        f.operand[OPND(ATTENTION, v)] = k->operand[OPND(ATTENTION_I, v)];
        f.operand[OPND(ATTENTION, o)] = k->operand[OPND(ATTENTION_I, o)];
        f.operand[OPND(ATTENTION, lse)] = k->operand[OPND(ATTENTION_I, lse)];
    }
    f.scratch = aligned_alloc(64, (kernel_scratch_floats(op, &f) * sizeof(float) + 127) / 64 * 64);
    device_cpu_run(op, &f);
    free(f.scratch);
}

static void args_copy(const struct cuda_case *c, struct kernel_args *to, const struct kernel_args *from)
{
    *to = *from;
    for (uint32_t i = 0; i < isa_info(c->op)->noperands; i++)
        if (from->operand[i].data) {
            size_t bytes = view_bytes(&from->operand[i]);
            to->operand[i].data = aligned_alloc(64, (bytes + 63) / 64 * 64);
            memcpy(to->operand[i].data, from->operand[i].data, bytes);
        }
}

static void args_free(const struct cuda_case *c, struct kernel_args *k)
{
    for (uint32_t i = 0; i < isa_info(c->op)->noperands; i++)
        free(k->operand[i].data);
}

static const char *run_cpu(const struct cuda_case *c, struct kernel_args *k)
{
    const char *why = kernel_check(c->op, k);
    if (why)
        return why;
    size_t bytes = (kernel_scratch_floats(c->op, k) * sizeof(float) + 127) / 64 * 64;
    k->scratch = aligned_alloc(64, bytes);
    device_cpu_run(c->op, k);
    free(k->scratch);
    return NULL;
}

/* rows of this half of kernels/cuda */
static const char *launch(enum op op, const struct cuda_call *c)
{
    static const struct {
        enum op op;
        const char *(*launch)(const struct cuda_call *c);
    } rows[] = {{OP_ATTENTION, cuda_ATTENTION},           {OP_ATTENTION_I, cuda_ATTENTION_I},
                {OP_ATTENTION_PART, cuda_ATTENTION_PART}, {OP_ATTENTION_PART_I, cuda_ATTENTION_PART_I},
                {OP_ATTENTION_MERGE, cuda_ATTENTION_MERGE}, {OP_MATMUL_NT, cuda_MATMUL_NT},
                {OP_MATMUL_NN, cuda_MATMUL_NN},           {OP_MATMUL_TN, cuda_MATMUL_TN},
                {OP_GROUPED_NT, cuda_GROUPED_NT},         {OP_GROUPED_NN, cuda_GROUPED_NN},
                {OP_GROUPED_TN, cuda_GROUPED_TN},         {OP_GROUPED_BIAS_W, cuda_GROUPED_BIAS_W}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op)
            return rows[i].launch(c);
    return "not a product";
}

/* ---- memory ---- */

static void *host_make(size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 511) / 256 * 256);
    memset(p, PATTERN, bytes < 1 << 20 ? bytes : 1 << 20);
    return p;
}
static void host_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}
static const char *host_finish(void)
{
    return NULL;
}
static const struct cuda_memory *memory_of(const struct cuda_case *c)
{
    static const struct cuda_memory host = {host_make, free, host_copy, host_copy, host_finish};
    return c->memory ? c->memory : &host;
}

/* copies of operands; args: on the host */
static void sample_copy(const struct cuda_case *c, const struct kernel_args *args, struct cuda_sample *s)
{
    const struct cuda_memory *m = memory_of(c);
    s->args = *args;
    for (uint32_t i = 0; i < isa_info(c->op)->noperands; i++)
        if (args->operand[i].data)
            s->args.operand[i].data = m->make(view_bytes(&args->operand[i]));
    s->call = (struct cuda_call){.args = &s->args, .libraries = c->libraries};
    s->call.workspace_bytes = cuda_workspace_bytes(c->op, &s->args, 90);
    s->call.workspace = m->make(s->call.workspace_bytes);
}

static void sample_store(const struct cuda_case *c, const struct kernel_args *args, struct cuda_sample *s)
{
    for (uint32_t i = 0; i < isa_info(c->op)->noperands; i++)
        if (args->operand[i].data)
            memory_of(c)->store(s->args.operand[i].data, args->operand[i].data, view_bytes(&args->operand[i]));
}

const char *cuda_sample_make(const struct cuda_case *c, cuda_case_prepare *prepare, struct cuda_sample *s)
{
    struct kernel_args args;
    args_make(c, &args, prepare);
    sample_copy(c, &args, s);
    const char *why = cuda_product_check(c->op, &s->args);
    if (!why && c->prepare)
        why = cuda_prepare(c->op, &s->call);
    sample_store(c, &args, s);
    args_free(c, &args);
    return why;
}

const char *cuda_sample_launch(const struct cuda_case *c, struct cuda_sample *s)
{
    return launch(c->op, &s->call);
}

void cuda_sample_free(const struct cuda_case *c, struct cuda_sample *s)
{
    const struct cuda_memory *m = memory_of(c);
    for (uint32_t i = 0; i < isa_info(c->op)->noperands; i++)
        if (s->args.operand[i].data)
            m->drop(s->args.operand[i].data);
    m->drop(s->call.workspace);
}

/* k: operands on the host, which get the results */
static const char *run_cuda(const struct cuda_case *c, struct kernel_args *k)
{
    const struct cuda_memory *m = memory_of(c);
    struct cuda_sample s;
    sample_copy(c, k, &s);
    const char *why = cuda_product_check(c->op, &s.args);
    if (!why && c->prepare)
        why = cuda_prepare(c->op, &s.call);
    sample_store(c, k, &s);
    why = why ? why : launch(c->op, &s.call);
    why = why ? why : m->finish();
    for (uint32_t i = 0; i < isa_info(c->op)->noperands && !why; i++)
        if (k->operand[i].data)
            m->fetch(k->operand[i].data, s.args.operand[i].data, view_bytes(&k->operand[i]));
    cuda_sample_free(c, &s);
    return why;
}

static bool gaps_intact(const struct view *v)
{
    uint32_t size = isa_dtype_bytes(v->dtype);
    for (uint32_t i = 0; i + 1 < v->rows; i++)
        for (size_t b = ((size_t)i * v->ld + v->cols) * size; b < (size_t)(i + 1) * v->ld * size; b++)
            if (((const uint8_t *)v->data)[b] != PATTERN)
                return false;
    return true;
}

/* infinities must be the same on both sides */
static double difference(const struct view *have, const struct view *want)
{
    double error = 0, size = 0;
    for (uint32_t i = 0; i < want->rows; i++)
        for (uint32_t j = 0; j < want->cols; j++) {
            double a = element(have, i, j), b = element(want, i, j);
            if (isinf(a) || isinf(b)) {
                error += a == b ? 0 : INFINITY;
            } else {
                error += (a - b) * (a - b);
                size += b * b;
            }
        }
    return sqrt(error / (size > 0 ? size : 1));
}

double cuda_compare(const struct cuda_case *c, cuda_case_prepare *prepare, double most)
{
    const struct isa_info *info = isa_info(c->op);
    struct kernel_args want, have;
    double worst = 0;
    args_make(c, &want, prepare);
    args_copy(c, &have, &want);
    const char *why = run_cpu(c, &want);
    why = why ? why : run_cuda(c, &have);
    if (why) {
        printf("\n%s: %s\n", info->name, why);
        worst = INFINITY;
    }
    for (uint32_t i = 0; i < info->noperands && !why; i++) {
        if (!want.operand[i].data)
            continue;
        double error = difference(&have.operand[i], &want.operand[i]);
        bool kept = gaps_intact(&have.operand[i]) && (info->operand[i].mark != MARK_READ || error == 0);
        if (!(error <= most) || !kept)
            printf("\n%s %s (C %s, G %s%s%s): error %.3g of %.3g%s\n", info->name, info->operand[i].name, isa_dtype_name(c->c),
                   isa_dtype_name(c->g), c->add ? ", add" : "", c->unaligned ? ", unaligned" : "", error, most,
                   kept ? "" : ", and something else was written");
        worst = kept && !isnan(error) ? fmax(worst, error) : INFINITY;
    }
    args_free(c, &want);
    args_free(c, &have);
    return worst;
}

bool cuda_repeats(const struct cuda_case *c, cuda_case_prepare *prepare)
{
    struct kernel_args once, again;
    args_make(c, &once, prepare);
    args_copy(c, &again, &once);
    const char *why = run_cuda(c, &once);
    cuda_host_set_reverse(1);
    why = why ? why : run_cuda(c, &again);
    cuda_host_set_reverse(0);
    bool same = !why;
    for (uint32_t i = 0; i < isa_info(c->op)->noperands && same; i++)
        if (once.operand[i].data)
            same = memcmp(once.operand[i].data, again.operand[i].data, view_bytes(&once.operand[i])) == 0;
    args_free(c, &once);
    args_free(c, &again);
    return same;
}
