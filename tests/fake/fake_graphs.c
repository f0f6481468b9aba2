/* Captures and graphs of the fake device: nodes with the dependencies that capture gives them, replayed in any order those
 * allow.  See fake_inside.h. */

#include "tests/fake/fake_inside.h"

#include <stdlib.h>
#include <string.h>

/* one ready node of a graph */
static void insert_ready(struct instance *it, uint32_t node)
{
    uint32_t k = it->nready++;
    for (; k && it->ready[k - 1] > node; k--)
        it->ready[k] = it->ready[k - 1];
    it->ready[k] = node;
}

static void end_node(struct instance *it, uint32_t at)
{
    uint32_t node = it->ready[at];
    memmove(&it->ready[at], &it->ready[at + 1], (--it->nready - at) * sizeof *it->ready);
    free(it->state[node]);
    it->state[node] = NULL;
    it->left--;
    for (uint32_t k = it->exec->first[node]; k < it->exec->first[node + 1]; k++)
        if (!--it->waits[it->exec->behind[k]])
            insert_ready(it, it->exec->behind[k]);
}

enum fake_progress fake_instance_step(struct instance *it)
{
    const struct task *nodes = it->exec->nodes;
    uint32_t n = it->nready, start = fake.s.seed && n ? (uint32_t)fake_cuda_draw(n) : 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t at = (start + k) % n, node = it->ready[at];
        const struct task *op = &nodes[node];
        enum fake_progress p = FAKE_DONE;
        if (op->kind == KIND_STEP) {
            if (!it->state[node] && (it->state[node] = malloc(op->bytes + 1)))
                memcpy(it->state[node], op->state, op->bytes);
            p = op->step(it->state[node]);
        }
        if (p == FAKE_STUCK)
            continue;
        if (p == FAKE_DONE)
            end_node(it, at);
        return it->left ? FAKE_MOVED : FAKE_DONE;
    }
    return it->left ? FAKE_STUCK : FAKE_DONE;
}

void fake_instance_free(struct instance *it)
{
    for (uint32_t i = 0; i < it->exec->n; i++)
        free(it->state[i]);
    free(it->waits);
    free(it->ready);
    free(it->state);
    free(it);
}

static int f_begin_capture(cuda_stream s, int mode)
{
    fake_cuda_lock();
    int rc = s->capture || mode != CUDA_CAPTURE_THREAD_LOCAL ? ERROR_CAPTURE : 0;
    if (!rc) {
        s->capture = calloc(1, sizeof *s->capture);
        s->capture->origin = s;
        s->last = -1;
        fake.ngraphs++;
        fake_cuda_captures(1);
    }
    fake_cuda_unlock();
    return fake_cuda_error(rc);
}

/* does everything come before the origin's last node? */
static bool all_joined(const struct CUgraph_st *g, int32_t last)
{
    uint8_t *seen = calloc(g->n + (size_t)1, 1);
    bool all = true;
    if (last >= 0)
        seen[last] = 1;
    for (uint32_t i = g->n; i-- > 0;)
        for (int j = 0; seen[i] && j < 2; j++)
            if (g->nodes[i].after[j] >= 0)
                seen[g->nodes[i].after[j]] = 1;
    for (uint32_t i = 0; i < g->n; i++)
        all = all && seen[i];
    free(seen);
    return all;
}

static int f_end_capture(cuda_stream s, cuda_graph *g)
{
    int rc = 0;
    fake_cuda_lock();
    *g = s->capture;
    fake_cuda_captures(*g ? -1 : 0);
    if (!*g || (*g)->origin != s)
        rc = ERROR_CAPTURE;
    else if (!all_joined(*g, s->last))
        rc = ERROR_UNJOINED;
    for (struct CUstream_st *t = fake.streams; t; t = t->next)
        if (t->capture == *g) {
            t->capture = NULL;
            t->last = -1;
        }
    fake_cuda_unlock();
    return fake_cuda_error(rc);
}

static int f_graph_destroy(cuda_graph g)
{
    fake_cuda_lock();
    for (uint32_t i = 0; i < g->n; i++)
        free(g->nodes[i].state);
    free(g->nodes);
    free(g);
    fake.ngraphs--;
    fake_cuda_unlock();
    return 0;
}

/* Which nodes come behind which: counted, then put in from the back. */
static void find_behind(cuda_graph_exec x)
{
    x->first = calloc(x->n + (size_t)1, sizeof *x->first);
    x->behind = calloc(2 * (size_t)x->n + 1, sizeof *x->behind);
    for (uint32_t i = 0; i < x->n; i++)
        for (int j = 0; j < 2; j++)
            if (x->nodes[i].after[j] >= 0)
                x->first[x->nodes[i].after[j]]++;
    for (uint32_t i = 1; i <= x->n; i++)
        x->first[i] += x->first[i - 1];
    for (uint32_t i = x->n; i-- > 0;)
        for (int j = 0; j < 2; j++)
            if (x->nodes[i].after[j] >= 0)
                x->behind[--x->first[x->nodes[i].after[j]]] = i;
}

static int f_instantiate(cuda_graph_exec *x, cuda_graph g, unsigned long long flags)
{
    (void)flags;
    fake_cuda_lock();
    *x = calloc(1, sizeof **x);
    (*x)->n = g->n;
    (*x)->nodes = calloc(g->n + (size_t)1, sizeof *(*x)->nodes);
    for (uint32_t i = 0; i < g->n; i++) {
        (*x)->nodes[i] = g->nodes[i];
        if (g->nodes[i].kind == KIND_STEP) {
            (*x)->nodes[i].state = malloc(g->nodes[i].bytes + 1);
            memcpy((*x)->nodes[i].state, g->nodes[i].state, g->nodes[i].bytes);
        }
    }
    find_behind(*x);
    fake.nexecs++;
    fake_cuda_unlock();
    return 0;
}

static int f_graph_nodes(cuda_graph g, void *nodes, size_t *n)
{
    (void)nodes;
    *n = g->n;
    return 0;
}

static struct instance *new_instance(cuda_graph_exec x)
{
    struct instance *it = calloc(1, sizeof *it);
    it->exec = x;
    it->left = x->n;
    it->waits = calloc(x->n + (size_t)1, 1);
    it->ready = calloc(x->n + (size_t)1, sizeof *it->ready);
    it->state = calloc(x->n + (size_t)1, sizeof *it->state);
    for (uint32_t i = 0; i < x->n; i++) {
        it->waits[i] = (uint8_t)((x->nodes[i].after[0] >= 0) + (x->nodes[i].after[1] >= 0));
        if (!it->waits[i])
            it->ready[it->nready++] = i;
    }
    return it;
}

static int f_graph_launch(cuda_graph_exec x, cuda_stream s)
{
    fake_cuda_lock();
    if (s->capture)
        fake_cuda_breach("a graph is launched into a capture");
    if (++fake.graph_launches == fake.s.refuse_graph) {
        fake_cuda_unlock();
        return fake_cuda_error(ERROR_VALUE);
    }
    fake_append(s, KIND_GRAPH)->state = new_instance(x);
    fake_cuda_unlock();
    return fake_cuda_error(fake.broken ? ERROR_LAUNCH : 0);
}

static int f_exec_destroy(cuda_graph_exec x)
{
    fake_cuda_lock();
    for (struct CUstream_st *s = fake.streams; s; s = s->next)
        for (struct task *op = s->head; op; op = op->next)
            if (op->kind == KIND_GRAPH && ((struct instance *)op->state)->exec == x) {
                if (!fake.broken && !fake.hung)
                    fake_cuda_breach("a graph is destroyed while it runs");
                fake_cuda_unlock();
                return 0;
            }
    for (uint32_t i = 0; i < x->n; i++)
        free(x->nodes[i].state);
    free(x->nodes);
    free(x->first);
    free(x->behind);
    free(x);
    fake.nexecs--;
    fake_cuda_unlock();
    return 0;
}

void fake_graphs_table(struct cuda_runtime *t)
{
    t->StreamBeginCapture = f_begin_capture;
    t->StreamEndCapture = f_end_capture;
    t->GraphInstantiate = f_instantiate;
    t->GraphGetNodes = f_graph_nodes;
    t->GraphLaunch = f_graph_launch;
    t->GraphExecDestroy = f_exec_destroy;
    t->GraphDestroy = f_graph_destroy;
}
