/* Copies and kernels of the fake device, and the faults that tests inject into launches.  See fake_inside.h. */

#include "tests/fake/fake_inside.h"
#include "tests/fake/fake_kernels.h"

#include <string.h>

struct copy {
    uint8_t *to;
    const uint8_t *from;
    size_t to_pitch, from_pitch, width, rows;
    int value; /* of a memset */
};

static enum fake_progress step_copy(void *state)
{
    const struct copy *c = state;
    for (size_t i = 0; i < c->rows; i++) {
        if (c->from)
            memcpy(c->to + i * c->to_pitch, c->from + i * c->from_pitch, c->width);
        else
            memset(c->to + i * c->to_pitch, c->value, c->width);
    }
    return FAKE_DONE;
}

static int enqueue_copy(const struct copy *c, cuda_stream s)
{
    fake_cuda_lock();
    bool known = fake_cuda_find(c->to, c->width) && (!c->from || fake_cuda_find(c->from, c->width));
    if (s->capture && !known)
        fake_cuda_breach("a copy of pageable memory is captured");
    if (c->rows && c->rows > 1 && (c->to_pitch < c->width || (c->from && c->from_pitch < c->width)))
        fake_cuda_breach("a copy's rows overlap");
    int rc = fake_cuda_enqueue(s, step_copy, c, sizeof *c);
    fake_cuda_unlock();
    return fake_cuda_error(fake.broken ? ERROR_LAUNCH : rc);
}

static int f_copy(void *to, const void *from, size_t bytes, int kind, cuda_stream s)
{
    const struct copy c = {to, from, bytes, bytes, bytes, 1, 0};
    return kind == CUDA_COPY_DEFAULT ? enqueue_copy(&c, s) : fake_cuda_error(ERROR_VALUE);
}
static int f_copy_2d(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows, int kind,
                     cuda_stream s)
{
    const struct copy c = {to, from, to_pitch, from_pitch, width, rows, 0};
    return kind == CUDA_COPY_DEFAULT ? enqueue_copy(&c, s) : fake_cuda_error(ERROR_VALUE);
}
static int f_memset(void *p, int value, size_t bytes, cuda_stream s)
{
    const struct copy c = {p, NULL, bytes, bytes, bytes, 1, value};
    return enqueue_copy(&c, s);
}

static enum fake_progress step_mark(void *state)
{
    const struct copy *c = state;
    *(volatile uint32_t *)(void *)c->to = (uint32_t)c->value;
    return FAKE_DONE;
}

static const char *plugin_mark(uint32_t *word, uint32_t value, cuda_stream s)
{
    const struct copy c = {.to = (uint8_t *)word, .value = (int)value};
    fake_cuda_lock();
    if (!fake_cuda_find(word, sizeof *word) || fake_cuda_is_device(word, sizeof *word))
        fake_cuda_breach("a progress word outside of mapped host memory");
    fake_cuda_enqueue(s, step_mark, &c, sizeof c);
    fake_cuda_unlock();
    return fake_cuda_launched();
}

static enum fake_progress step_break(void *state)
{
    (void)state;
    fake.broken = true;
    return FAKE_DONE;
}
static enum fake_progress step_hang(void *state)
{
    (void)state;
    fake.hung = true;
    return FAKE_STUCK;
}

/* NULL = go on */
static const char *count_launch(cuda_stream s)
{
    char none = 0;
    fake.launches++;
    if (fake.launches == fake.s.refuse_launch)
        return "invalid configuration argument";
    if (fake.launches == fake.s.break_launch)
        fake_cuda_enqueue(s, step_break, &none, 1);
    if (fake.launches == fake.s.hang_launch)
        fake_cuda_enqueue(s, step_hang, &none, 1);
    return NULL;
}

/* a copy that turns no dtype into another is the copy engines' own where one side is the host's */
static bool is_copy_engines(enum op op, const struct kernel_args *k)
{
    const struct view *y = &k->operand[OPND(COPY, y)], *x = &k->operand[OPND(COPY, x)];
    return op == OP_COPY && y->dtype == x->dtype && y->rows &&
           (!fake_cuda_is_device(y->data, 1) || !fake_cuda_is_device(x->data, 1));
}

/* checks what a kernel is given, and puts it on the stream */
static void enqueue_kernel(enum op op, const struct kernel_args *args, const struct cuda_call *c)
{
    struct fake_kernel k = {.op = op, .args = *args, .staged = c->staged};
    const struct isa_info *info = isa_info(op);
    k.workspace_bytes = fake_cuda_workspace(op);
    k.workspace = k.workspace_bytes ? c->workspace : NULL;
    if (k.workspace_bytes > c->workspace_bytes)
        fake_cuda_breach("%s: its workspace is too small", info->name);
    if (is_copy_engines(op, args))
        fake_cuda_breach("a kernel copies between host and device");
    for (uint32_t i = 0; i < info->noperands; i++) {
        const struct view *v = &k.args.operand[i];
        size_t bytes = v->rows ? ((size_t)(v->rows - 1) * v->ld + v->cols) * isa_dtype_bytes(v->dtype) : 0;
        if (v->data && !fake_cuda_find(v->data, bytes))
            fake_cuda_breach("%s: operand %u is in nobody's memory", info->name, i);
    }
    if (c->workspace && !fake_cuda_is_device(c->workspace, c->workspace_bytes))
        fake_cuda_breach("%s: its workspace is not device memory", info->name);
    if ((uintptr_t)c->workspace % 256)
        fake_cuda_breach("%s: its workspace is not aligned", info->name);
    if (!fake.loaded[op] && fake.pending > 0)
        fake_cuda_breach("%s: its kernel is loaded while a communication is under way, which may never end", info->name);
    fake.loaded[op] = true;
    fake_cuda_enqueue(c->stream, fake_kernel_run, &k, sizeof k);
}

static const char *plugin_launch(enum op op, const struct cuda_call *c)
{
    fake_cuda_lock();
    const char *why = count_launch(c->stream);
    if (!why)
        enqueue_kernel(op, c->args, c);
    fake_cuda_unlock();
    return why ? why : fake_cuda_launched();
}

/* the patterns of kernels/cuda/fused.h, by what stands there alone */
static unsigned plugin_fuse(const enum op *ops, const struct kernel_args *const *args, unsigned n)
{
    static const enum op pattern[][4] = {{OP_RMSNORM_I, OP_RMSNORM_W, NOPS}, {OP_LAYERNORM_I, OP_LAYERNORM_W, OP_BIAS_W, NOPS},
                                         {OP_MATMUL_NT, OP_GELU, NOPS}, {OP_MATMUL_TN, OP_BIAS_W, NOPS}, {OP_MATMUL_NN, OP_MATMUL_TN, OP_GELU_I, NOPS}};
    unsigned same = 1;
    if (n > 1 && ops[0] == OP_ADD && ops[1] == OP_RMSNORM)
        return args[1]->operand[OPND(RMSNORM, x)].data == args[0]->operand[OPND(ADD, y)].data ? 2 : 1;
    for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++) {
        unsigned k = 0;
        while (k < n && k < 4 && pattern[i][k] != NOPS && ops[k] == pattern[i][k])
            k++;
        if (k == 4 || pattern[i][k] == NOPS)
            return k;
    }
    while (same < n && ops[0] == OP_ADAMW && ops[same] == OP_ADAMW)
        same++;
    return same;
}

static size_t plugin_fused_workspace(const enum op *ops, const struct kernel_args *const *args, unsigned n)
{
    size_t most = 0;
    (void)args;
    for (unsigned i = 0; i < n; i++)
        most = fake_cuda_workspace(ops[i]) > most ? fake_cuda_workspace(ops[i]) : most;
    return most;
}

static unsigned plugin_fused_hides(const enum op *ops, unsigned n)
{
    return n > 1 && ops[0] == OP_MATMUL_NN ? 0 : n;
}

static const char *plugin_launch_fused(const enum op *ops, const struct kernel_args *const *args, unsigned n, const struct cuda_call *c)
{
    fake_cuda_lock();
    if (plugin_fuse(ops, args, n) != n)
        fake_cuda_breach("instructions in one launch that do not belong together");
    const char *why = count_launch(c->stream);
    for (unsigned i = 0; i < n && !why; i++)
        enqueue_kernel(ops[i], args[i], c);
    if (!why && plugin_fused_hides(ops, n) < n) { /* whoever reads what is not written finds no number */
        const struct view *hidden = &args[plugin_fused_hides(ops, n)]->operand[0];
        size_t size = isa_dtype_bytes(hidden->dtype);
        const struct copy nan = {hidden->data, NULL, hidden->ld * size, 0, hidden->cols * size, hidden->rows, 0xff};
        fake_cuda_enqueue(c->stream, step_copy, &nan, sizeof nan);
    }
    fake_cuda_unlock();
    return why ? why : fake_cuda_launched();
}

static const char *plugin_sum(const struct cuda_sum *s, cuda_stream stream)
{
    fake_cuda_lock();
    const char *why = count_launch(stream);
    if (!why)
        fake_cuda_enqueue(stream, fake_kernel_sum, s, sizeof *s);
    fake_cuda_unlock();
    return why ? why : fake_cuda_launched();
}

void fake_launches_table(struct cuda_runtime *t, struct cuda_plugin *p)
{
    t->MemcpyAsync = f_copy;
    t->Memcpy2DAsync = f_copy_2d;
    t->MemsetAsync = f_memset;
    p->launch = plugin_launch;
    p->fuse = plugin_fuse;
    p->fused_workspace_bytes = plugin_fused_workspace;
    p->fused_hides = plugin_fused_hides;
    p->launch_fused = plugin_launch_fused;
    p->sum = plugin_sum;
    p->mark = plugin_mark;
}
