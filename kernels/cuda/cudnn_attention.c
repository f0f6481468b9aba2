/* ATTENTION and ATTENTION_I by cuDNN: when, with which memory, and the launch.
 *
 * Only plans that were made at open are used, so nothing is compiled during a step or a capture; whatever cuDNN refuses
 * is our own kernels' work, and cudnn_job_get() says why.  Its gradient adds queries' gradients by atomics, so a
 * deterministic run takes our own, which need no memory for scores either (cuDNN's deterministic one needs 2 b h s^2
 * bytes on sm_90). Memory is by the rule of runtime/workspace.h, which the compiler places by; test_cudnn_plans.c
 * compares it with what plans ask for. */

#include "kernels/cuda/cudnn_attention.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V(op, name) (&k->operand[OPND(op, name)])

enum { BINDINGS = 24 };

/* a plan and the numbers it reads when it is launched */
struct attention_plan {
    struct cudnn_job job;
    struct workspace_attention memory;
    void *plan; /* NULL: cuDNN refused, and is not asked again */
    float low, cap, uncap, one;
    int32_t window;
};
struct attention_cache {
    struct attention_plan **plan;
    size_t nplans;
};

static bool fits(const struct view *v)
{
    return v->dtype == DTYPE_BF16 && v->ld % 8 == 0 && (uintptr_t)v->data % 16 == 0;
}

#define GET(op, name) (k->attr[ATTR(op, name)].i)
#define FILL(op, j)                                                                                                    \
    do {                                                                                                               \
        (j)->heads = GET(op, heads);                                                                                   \
        (j)->kv = GET(op, kv);                                                                                         \
        (j)->head = GET(op, head);                                                                                     \
        (j)->value = (int64_t)V(op, v)->cols / (j)->kv;                                                                \
        (j)->sequence = GET(op, sequence);                                                                             \
        (j)->batch = (int64_t)V(op, q)->rows / (j)->sequence;                                                          \
        (j)->window = GET(op, window) < (j)->sequence ? GET(op, window) : 0;                                           \
        (j)->scale = (float)k->attr[ATTR(op, scale)].f;                                                                \
        (j)->softcap = (float)k->attr[ATTR(op, softcap)].f;                                                            \
        (j)->ldq = V(op, q)->ld;                                                                                       \
        (j)->ldk = V(op, k)->ld;                                                                                       \
        (j)->ldv = V(op, v)->ld;                                                                                       \
        (j)->ldo = V(op, o)->ld;                                                                                       \
    } while (0)

static bool all_fit(const struct kernel_args *k, const size_t *operand, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!fits(&k->operand[operand[i]]))
            return false;
    return true;
}

const char *cudnn_job_get(enum op op, const struct kernel_args *k, int sm, struct cudnn_job *j,
                          struct workspace_attention *m)
{
    static const size_t forth[] = {OPND(ATTENTION, q), OPND(ATTENTION, k), OPND(ATTENTION, v), OPND(ATTENTION, o)};
    static const size_t back[] = {OPND(ATTENTION_I, q),  OPND(ATTENTION_I, k),    OPND(ATTENTION_I, v),
                                  OPND(ATTENTION_I, o),  OPND(ATTENTION_I, dout), OPND(ATTENTION_I, dq),
                                  OPND(ATTENTION_I, dk), OPND(ATTENTION_I, dv)};
    memset(j, 0, sizeof *j);
    memset(m, 0, sizeof *m);
    if (op != OP_ATTENTION && op != OP_ATTENTION_I)
        return "keys are those of a part of the sequence";
    if (op == OP_ATTENTION) {
        FILL(ATTENTION, j);
    } else {
        FILL(ATTENTION_I, j);
        j->backward = 1;
        j->lddout = V(ATTENTION_I, dout)->ld;
        j->lddq = V(ATTENTION_I, dq)->ld;
        j->lddk = V(ATTENTION_I, dk)->ld;
        j->lddv = V(ATTENTION_I, dv)->ld;
    }
    if (k->operand[j->backward ? OPND(ATTENTION_I, q) : OPND(ATTENTION, q)].dtype != DTYPE_BF16)
        return "operands are not bf16";
    const struct workspace_heads h = {
        (uint64_t)j->batch, (uint64_t)j->sequence,
        (uint64_t)j->heads, (uint64_t)j->kv,
        (uint32_t)j->head,  (uint32_t)j->value,
        j->softcap > 0,     (j->backward ? GET(ATTENTION_I, alibi) : GET(ATTENTION, alibi)) != 0};
    const char *why = workspace_attention_refused(&h, j->backward != 0, (uint32_t)sm);
    if (why)
        return why;
    if (!(j->backward ? all_fit(k, back, sizeof back / sizeof *back) : all_fit(k, forth, sizeof forth / sizeof *forth)))
        return "rows do not begin at multiples of 16 bytes";
    *m = workspace_attention(&h, j->backward != 0, (uint32_t)sm);
    return NULL;
}

static bool wanted(enum op op, const struct cuda_call *c, struct cudnn_job *j, struct workspace_attention *m)
{
    const struct cuda_libraries *l = c->libraries;
    return l && l->dnn_handle && !(op == OP_ATTENTION_I && l->deterministic) &&
           !cudnn_job_get(op, c->args, l->sm, j, m) && m->total <= c->workspace_bytes;
}

static struct attention_plan *plan_find(const struct cuda_libraries *l, const struct cudnn_job *j)
{
    for (size_t i = 0; l->plans && i < l->plans->nplans; i++)
        if (memcmp(&l->plans->plan[i]->job, j, sizeof *j) == 0)
            return l->plans->plan[i];
    return NULL;
}

static struct attention_plan *plan_add(struct cuda_libraries *l)
{
    if (!l->plans)
        l->plans = (struct attention_cache *)calloc(1, sizeof *l->plans);
    if (!l->plans)
        return NULL;
    struct attention_plan **more = (struct attention_plan **)realloc(l->plans->plan,
                                                                     (l->plans->nplans + 1) * sizeof *more);
    if (!more)
        return NULL;
    l->plans->plan = more;
    struct attention_plan *p = (struct attention_plan *)calloc(1, sizeof *p);
    if (p)
        l->plans->plan[l->plans->nplans++] = p;
    return p;
}

void cudnn_attention_prepare(enum op op, const struct cuda_call *c)
{
    struct cuda_libraries *l = c->libraries;
    struct cudnn_job job;
    struct workspace_attention memory;
    size_t bytes = 0;
    if (!wanted(op, c, &job, &memory) || plan_find(l, &job))
        return;
    struct attention_plan *p = plan_add(l);
    if (!p)
        return;
    struct cudnn_graph *g = (struct cudnn_graph *)calloc(1, sizeof *g);
    p->job = job;
    p->memory = memory;
    p->low = -FLT_MAX; /* -inf less the maximum of a tile that is hidden as a whole would be NaN */
    p->cap = job.softcap;
    p->uncap = job.softcap > 0 ? 1 / job.softcap : 0;
    p->one = 1;
    p->window = (int32_t)job.window;
    if (!g)
        return;
    g->f = &l->dnn;
    cudnn_attention_graph(g, &job);
    /* another version than the rule's may take more, as far as other instructions' share of the workspace goes */
    p->memory.plan = c->workspace_bytes - (memory.total - memory.plan);
    p->plan = cudnn_plan(g, l->dnn_handle, NULL, p->memory.plan, &bytes);
    p->memory.plan = bytes;
    p->memory.total = memory.total - memory.plan + bytes;
    cudnn_graph_free(g);
    free(g);
}

void attention_cache_free(struct cuda_libraries *l)
{
    if (!l->plans)
        return;
    for (size_t i = 0; i < l->plans->nplans; i++) {
        if (l->plans->plan[i]->plan)
            l->dnn.cudnnBackendDestroyDescriptor(l->plans->plan[i]->plan);
        free(l->plans->plan[i]);
    }
    free(l->plans->plan);
    free(l->plans);
    l->plans = NULL;
}

struct bindings {
    int n;
    int64_t uid[BINDINGS];
    void *pointer[BINDINGS];
};
static void bind(struct bindings *b, int64_t uid, void *pointer)
{
    b->uid[b->n] = uid;
    b->pointer[b->n++] = pointer;
}

static void bind_numbers(struct bindings *b, struct attention_plan *p)
{
    bind(b, UID_SCALE, &p->job.scale);
    bind(b, UID_LOW, &p->low);
    if (p->job.softcap > 0) {
        bind(b, UID_CAP, &p->cap);
        bind(b, UID_UNCAP, &p->uncap);
    }
    if (p->job.window)
        bind(b, UID_WINDOW, &p->window);
    if (p->job.backward)
        bind(b, UID_ONE, &p->one);
}

static const char *execute(const struct cuda_call *c, struct attention_plan *p, struct bindings *b)
{
    struct cuda_libraries *l = c->libraries;
    char *workspace = (char *)c->workspace + p->memory.stats + p->memory.sums + p->memory.dq_sum;
    bind_numbers(b, p);
    int bad = l->dnn.cudnnSetStream(l->dnn_handle, c->stream);
    bad = bad ? bad : cudnn_run(&l->dnn, l->dnn_handle, p->plan, b->n, b->uid, b->pointer, workspace);
    if (!bad)
        return NULL;
    snprintf(l->error, sizeof l->error, "cuDNN's attention: %s", l->dnn.cudnnGetErrorString(bad));
    return l->error;
}

static void bind_forward(struct bindings *b, const struct cuda_call *c)
{
    const struct kernel_args *k = c->args;
    bind(b, UID_Q, V(ATTENTION, q)->data);
    bind(b, UID_K, V(ATTENTION, k)->data);
    bind(b, UID_V, V(ATTENTION, v)->data);
    bind(b, UID_O, V(ATTENTION, o)->data);
    bind(b, UID_STATS, c->workspace);
}

static void bind_backward(struct bindings *b, const struct cuda_call *c, const struct attention_plan *p)
{
    const struct kernel_args *k = c->args;
    char *at = (char *)c->workspace;
    bind(b, UID_Q, V(ATTENTION_I, q)->data);
    bind(b, UID_K, V(ATTENTION_I, k)->data);
    bind(b, UID_V, V(ATTENTION_I, v)->data);
    bind(b, UID_O, V(ATTENTION_I, o)->data);
    bind(b, UID_DO, V(ATTENTION_I, dout)->data);
    bind(b, UID_DQ, V(ATTENTION_I, dq)->data);
    bind(b, UID_DK, V(ATTENTION_I, dk)->data);
    bind(b, UID_DV, V(ATTENTION_I, dv)->data);
    bind(b, UID_STATS, at);
    bind(b, UID_SUMS, at + p->memory.stats);
    bind(b, UID_DQ_SUM, at + p->memory.stats + p->memory.sums);
}

static const char *forward(const struct cuda_call *c, struct attention_plan *p)
{
    const struct kernel_args *k = c->args;
    struct bindings b = {0};
    bind_forward(&b, c);
    const char *why = execute(c, p, &b);
    return why ? why
               : attention_statistics(c, V(ATTENTION, lse), (float *)c->workspace, (uint32_t)p->job.sequence, false);
}

static const char *backward(const struct cuda_call *c, struct attention_plan *p)
{
    const struct kernel_args *k = c->args;
    struct bindings b = {0};
    char *sum = (char *)c->workspace + p->memory.stats + p->memory.sums;
    bind_backward(&b, c, p);
    /* its kernels add to the queries' gradients, and not all versions clear them first */
    if (c->libraries->runtime->MemsetAsync(sum, 0, p->memory.dq_sum, c->stream))
        return "the queries' gradients cannot be cleared";
    const char *why = attention_statistics(c, V(ATTENTION_I, lse), (float *)c->workspace, (uint32_t)p->job.sequence,
                                           true);
    return why ? why : execute(c, p, &b);
}

/* the plan that serves it, or NULL */
static struct attention_plan *plan_for(enum op op, const struct cuda_call *c)
{
    struct cudnn_job job;
    struct workspace_attention memory;
    struct attention_plan *p = wanted(op, c, &job, &memory) ? plan_find(c->libraries, &job) : NULL;
    return p && p->plan && p->memory.total <= c->workspace_bytes ? p : NULL;
}

bool cudnn_attention(enum op op, const struct cuda_call *c, const char **why)
{
    struct attention_plan *p = plan_for(op, c);
    if (p)
        *why = op == OP_ATTENTION ? forward(c, p) : backward(c, p);
    return p != NULL;
}

bool cudnn_attention_alone(enum op op, const struct cuda_call *c, const char **why)
{
    struct attention_plan *p = plan_for(op, c);
    struct bindings b = {0};
    if (!p)
        return false;
    if (op == OP_ATTENTION)
        bind_forward(&b, c);
    else
        bind_backward(&b, c, p);
    *why = execute(c, p, &b);
    return true;
}
