/* See cudnn_graph.h.  Numbers are those of cudnn_graph.h (the library's), version 9. */

#include "kernels/cuda/cudnn_graph.h"

#include <stdlib.h>
#include <string.h>

/* kinds of descriptors, names and types of attributes */
enum {
    D_POINTWISE = 0,
    D_HEURISTICS = 4,
    D_ENGINE_CONFIG = 3,
    D_PLAN = 5,
    D_POINTWISE_OP = 13,
    D_GRAPH = 15,
    D_PACK = 16,
    D_TENSOR = 17,
    D_MATMUL = 18,
    D_MATMUL_OP = 19,
    D_REDUCTION = 21,
    D_REDUCTION_OP = 22,
    D_RESHAPE_OP = 31,
    D_PROPERTIES = 38
};
enum {
    A_POINTWISE_MODE = 0,
    A_POINTWISE_MATH = 1,
    A_POINTWISE_AXIS = 9,
    A_HEUR_MODE = 200,
    A_HEUR_GRAPH = 201,
    A_HEUR_RESULTS = 202,
    A_HEUR_PROPERTIES = 204,
    A_CONFIG_WORKSPACE = 303,
    A_PLAN_HANDLE = 400,
    A_PLAN_CONFIG = 401,
    A_PLAN_WORKSPACE = 402,
    A_PLAN_PROPERTIES = 407,
    A_OP_POINTWISE = 750,
    A_OP_X = 751,
    A_OP_B = 752,
    A_OP_Y = 753,
    A_OP_DX = 756,
    A_OP_DY = 757,
    A_OP_T = 758,
    A_GRAPH_HANDLE = 800,
    A_GRAPH_OPS = 801,
    A_ALIGNMENT = 900,
    A_DATA_TYPE = 901,
    A_DIMENSIONS = 902,
    A_STRIDES = 903,
    A_UID = 906,
    A_VIRTUAL = 907,
    A_BY_VALUE = 908,
    A_PACK_UIDS = 1000,
    A_PACK_POINTERS = 1001,
    A_PACK_WORKSPACE = 1003,
    A_MATMUL_TYPE = 1500,
    A_MATMUL_A = 1520,
    A_MATMUL_B = 1521,
    A_MATMUL_C = 1522,
    A_MATMUL_D = 1523,
    A_REDUCTION_MODE = 1600,
    A_REDUCTION_TYPE = 1601,
    A_REDUCTION_X = 1610,
    A_REDUCTION_Y = 1611,
    A_REDUCTION_D = 1612,
    A_RESHAPE_X = 2200,
    A_RESHAPE_Y = 2201,
    A_PROPERTIES_JSON = 2702
};
enum {
    T_HANDLE = 0,
    T_DATA_TYPE = 1,
    T_BOOL = 2,
    T_INT64 = 3,
    T_POINTER = 6,
    T_HEUR_MODE = 8,
    T_POINTWISE = 14,
    T_DESCRIPTOR = 15,
    T_REDUCTION = 18,
    T_CHAR = 24
};
enum { HEUR_MODE_A = 3, ENGINES = 8, ALIGNMENT_BYTES = 16 };

static void fail(struct cudnn_graph *g, int status, const char *what)
{
    if (!g->status && status) {
        g->status = status;
        g->what = what;
    }
}

static void *descriptor(struct cudnn_graph *g, int kind)
{
    void *d = NULL;
    if (g->status)
        return NULL;
    if (g->nmade == CUDNN_GRAPH_DESCRIPTORS) {
        fail(g, -1, "a graph of too many descriptors");
        return NULL;
    }
    fail(g, g->f->cudnnBackendCreateDescriptor(kind, &d), "a descriptor");
    if (!g->status)
        g->made[g->nmade++] = d;
    return g->status ? NULL : d;
}

static void set(struct cudnn_graph *g, void *d, int attribute, int type, int64_t n, const void *values)
{
    if (!g->status)
        fail(g, g->f->cudnnBackendSetAttribute(d, attribute, type, n, values), "an attribute");
}
static void set_int(struct cudnn_graph *g, void *d, int attribute, int type, int value)
{
    int32_t v = value;
    set(g, d, attribute, type, 1, &v);
}
static void set_descriptor(struct cudnn_graph *g, void *d, int attribute, void *value)
{
    set(g, d, attribute, T_DESCRIPTOR, 1, &value);
}
static void finalize(struct cudnn_graph *g, void *d, const char *what)
{
    if (!g->status)
        fail(g, g->f->cudnnBackendFinalize(d), what);
}
static void finalize_op(struct cudnn_graph *g, void *d, const char *what)
{
    finalize(g, d, what);
    if (!g->status && g->nops == CUDNN_GRAPH_OPS)
        fail(g, -1, "a graph of too many operations");
    if (!g->status)
        g->op[g->nops++] = d;
}

struct cudnn_shape cudnn_dense(int64_t b, int64_t h, int64_t rows, int64_t cols)
{
    return (struct cudnn_shape){{b, h, rows, cols}, {h * rows * cols, rows * cols, cols, 1}};
}

static void *tensor(struct cudnn_graph *g, int64_t uid, enum cudnn_type type, const struct cudnn_shape *s,
                    bool is_virtual, bool by_value)
{
    void *d = descriptor(g, D_TENSOR);
    int64_t alignment = ALIGNMENT_BYTES;
    set_int(g, d, A_DATA_TYPE, T_DATA_TYPE, (int)type);
    set(g, d, A_DIMENSIONS, T_INT64, 4, s->dim);
    set(g, d, A_STRIDES, T_INT64, 4, s->stride);
    set(g, d, A_UID, T_INT64, 1, &uid);
    set(g, d, A_ALIGNMENT, T_INT64, 1, &alignment);
    set(g, d, A_VIRTUAL, T_BOOL, 1, &is_virtual);
    set(g, d, A_BY_VALUE, T_BOOL, 1, &by_value);
    finalize(g, d, "a tensor");
    return d;
}

void *cudnn_tensor(struct cudnn_graph *g, int64_t uid, enum cudnn_type type, const struct cudnn_shape *s)
{
    return tensor(g, uid, type, s, false, false);
}
void *cudnn_value(struct cudnn_graph *g, int64_t uid, enum cudnn_type type)
{
    struct cudnn_shape one = cudnn_dense(1, 1, 1, 1);
    return tensor(g, uid, type, &one, false, true);
}
void *cudnn_virtual(struct cudnn_graph *g, enum cudnn_type type, const struct cudnn_shape *s)
{
    return tensor(g, g->next_uid++, type, s, true, false);
}

void cudnn_matmul(struct cudnn_graph *g, void *a, void *b, void *c)
{
    void *d = descriptor(g, D_MATMUL);
    set_int(g, d, A_MATMUL_TYPE, T_DATA_TYPE, CUDNN_F32);
    finalize(g, d, "a product");
    void *op = descriptor(g, D_MATMUL_OP);
    set_descriptor(g, op, A_MATMUL_A, a);
    set_descriptor(g, op, A_MATMUL_B, b);
    set_descriptor(g, op, A_MATMUL_C, c);
    set_descriptor(g, op, A_MATMUL_D, d);
    finalize_op(g, op, "a product");
}

static void *pointwise(struct cudnn_graph *g, enum cudnn_pointwise mode, enum cudnn_type math, const int64_t *axis)
{
    void *d = descriptor(g, D_POINTWISE);
    set_int(g, d, A_POINTWISE_MODE, T_POINTWISE, (int)mode);
    set_int(g, d, A_POINTWISE_MATH, T_DATA_TYPE, (int)math);
    if (axis)
        set(g, d, A_POINTWISE_AXIS, T_INT64, 1, axis);
    finalize(g, d, "a map");
    void *op = descriptor(g, D_POINTWISE_OP);
    set_descriptor(g, op, A_OP_POINTWISE, d);
    return op;
}

void cudnn_map(struct cudnn_graph *g, enum cudnn_pointwise mode, enum cudnn_type math, void *x, void *b, void *y)
{
    void *op = pointwise(g, mode, math, NULL);
    set_descriptor(g, op, A_OP_X, x);
    if (b)
        set_descriptor(g, op, A_OP_B, b);
    set_descriptor(g, op, A_OP_Y, y);
    finalize_op(g, op, "a map");
}

void cudnn_map_back(struct cudnn_graph *g, enum cudnn_pointwise mode, void *x, void *dy, void *y)
{
    void *op = pointwise(g, mode, CUDNN_F32, NULL);
    set_descriptor(g, op, A_OP_X, x);
    set_descriptor(g, op, A_OP_DY, dy);
    set_descriptor(g, op, A_OP_DX, y);
    finalize_op(g, op, "a map's gradient");
}

void cudnn_index(struct cudnn_graph *g, int64_t axis, void *x, void *y)
{
    void *op = pointwise(g, CUDNN_INDEX, CUDNN_I32, &axis);
    set_descriptor(g, op, A_OP_X, x);
    set_descriptor(g, op, A_OP_Y, y);
    finalize_op(g, op, "an index");
}

void cudnn_select(struct cudnn_graph *g, void *x, void *b, void *where, void *y)
{
    void *op = pointwise(g, CUDNN_SELECT, CUDNN_F32, NULL);
    set_descriptor(g, op, A_OP_X, x);
    set_descriptor(g, op, A_OP_B, b);
    set_descriptor(g, op, A_OP_T, where);
    set_descriptor(g, op, A_OP_Y, y);
    finalize_op(g, op, "a choice");
}

void cudnn_reduction(struct cudnn_graph *g, enum cudnn_reduce mode, void *x, void *y)
{
    void *d = descriptor(g, D_REDUCTION);
    set_int(g, d, A_REDUCTION_MODE, T_REDUCTION, (int)mode);
    set_int(g, d, A_REDUCTION_TYPE, T_DATA_TYPE, CUDNN_F32);
    finalize(g, d, "a reduction");
    void *op = descriptor(g, D_REDUCTION_OP);
    set_descriptor(g, op, A_REDUCTION_X, x);
    set_descriptor(g, op, A_REDUCTION_Y, y);
    set_descriptor(g, op, A_REDUCTION_D, d);
    finalize_op(g, op, "a reduction");
}

void cudnn_reshape(struct cudnn_graph *g, void *x, void *y)
{
    void *op = descriptor(g, D_RESHAPE_OP);
    set_descriptor(g, op, A_RESHAPE_X, x);
    set_descriptor(g, op, A_RESHAPE_Y, y);
    finalize_op(g, op, "a transposition");
}

static void *plan_of(struct cudnn_graph *g, void *config, void *handle, void *properties, size_t *workspace_bytes)
{
    void *plan = NULL;
    int64_t bytes = 0, n = 0;
    const struct cudnn_functions *f = g->f;
    int bad = f->cudnnBackendCreateDescriptor(D_PLAN, &plan);
    if (bad)
        return NULL;
    bad = properties ? f->cudnnBackendSetAttribute(plan, A_PLAN_PROPERTIES, T_DESCRIPTOR, 1, &properties)
                     : f->cudnnBackendSetAttribute(plan, A_PLAN_HANDLE, T_HANDLE, 1, &handle);
    bad = bad ? bad : f->cudnnBackendSetAttribute(plan, A_PLAN_CONFIG, T_DESCRIPTOR, 1, &config);
    bad = bad ? bad : f->cudnnBackendFinalize(plan);
    bad = bad ? bad : f->cudnnBackendGetAttribute(plan, A_PLAN_WORKSPACE, T_INT64, 1, &n, &bytes);
    if (!bad) {
        *workspace_bytes = (size_t)bytes;
        return plan;
    }
    f->cudnnBackendDestroyDescriptor(plan);
    return NULL;
}

/* engines' configurations, best first: how many */
static int64_t suggest(struct cudnn_graph *g, void *handle, void *properties, void **config)
{
    void *graph = descriptor(g, D_GRAPH);
    int64_t found = 0;
    if (!properties)
        set(g, graph, A_GRAPH_HANDLE, T_HANDLE, 1, &handle);
    set(g, graph, A_GRAPH_OPS, T_DESCRIPTOR, g->nops, g->op);
    finalize(g, graph, "the graph");
    void *heuristics = descriptor(g, D_HEURISTICS);
    set_descriptor(g, heuristics, A_HEUR_GRAPH, graph);
    set_int(g, heuristics, A_HEUR_MODE, T_HEUR_MODE, HEUR_MODE_A);
    if (properties)
        set_descriptor(g, heuristics, A_HEUR_PROPERTIES, properties);
    finalize(g, heuristics, "engines");
    for (int i = 0; i < ENGINES; i++)
        config[i] = descriptor(g, D_ENGINE_CONFIG);
    if (!g->status)
        fail(g, g->f->cudnnBackendGetAttribute(heuristics, A_HEUR_RESULTS, T_DESCRIPTOR, ENGINES, &found, config),
             "engines");
    found = g->status ? 0 : found < ENGINES ? found : ENGINES;
    if (!found)
        fail(g, -1, "no engine");
    return found;
}

/* -1: it does not say */
static int64_t config_bytes(const struct cudnn_graph *g, void *config)
{
    int64_t bytes = -1, n = 0;
    return g->f->cudnnBackendGetAttribute(config, A_CONFIG_WORKSPACE, T_INT64, 1, &n, &bytes) ? -1 : bytes;
}

void *cudnn_plan(struct cudnn_graph *g, void *handle, void *properties, size_t room, size_t *workspace_bytes)
{
    void *config[ENGINES], *plan = NULL;
    int64_t found = suggest(g, handle, properties, config);
    for (int64_t i = 0; i < found && !plan; i++) {
        int64_t bytes = config_bytes(g, config[i]);
        if (bytes < 0 || (uint64_t)bytes <= room)
            plan = plan_of(g, config[i], handle, properties, workspace_bytes);
        if (plan && *workspace_bytes > room) { /* it had not said so */
            g->f->cudnnBackendDestroyDescriptor(plan);
            plan = NULL;
        }
    }
    if (!plan)
        fail(g, -1, "no engine");
    return plan;
}

bool cudnn_bytes(struct cudnn_graph *g, void *handle, void *properties, size_t *workspace_bytes)
{
    void *config[ENGINES];
    int64_t bytes = suggest(g, handle, properties, config) ? config_bytes(g, config[0]) : -1;
    *workspace_bytes = bytes < 0 ? 0 : (size_t)bytes;
    return bytes >= 0;
}

void cudnn_graph_free(struct cudnn_graph *g)
{
    while (g->nmade)
        g->f->cudnnBackendDestroyDescriptor(g->made[--g->nmade]);
}

void *cudnn_properties(const struct cudnn_functions *f, const char *json)
{
    void *d = NULL;
    if (f->cudnnBackendCreateDescriptor(D_PROPERTIES, &d))
        return NULL;
    if (f->cudnnBackendSetAttribute(d, A_PROPERTIES_JSON, T_CHAR, (int64_t)strlen(json), json) == 0 &&
        f->cudnnBackendFinalize(d) == 0)
        return d;
    f->cudnnBackendDestroyDescriptor(d);
    return NULL;
}

int cudnn_run(const struct cudnn_functions *f, void *handle, void *plan, int n, const int64_t *uid,
              void *const *pointer, void *workspace)
{
    void *pack = NULL;
    int bad = f->cudnnBackendCreateDescriptor(D_PACK, &pack);
    if (bad)
        return bad;
    bad = f->cudnnBackendSetAttribute(pack, A_PACK_UIDS, T_INT64, n, uid);
    bad = bad ? bad : f->cudnnBackendSetAttribute(pack, A_PACK_POINTERS, T_POINTER, n, pointer);
    bad = bad ? bad : f->cudnnBackendSetAttribute(pack, A_PACK_WORKSPACE, T_POINTER, 1, &workspace);
    bad = bad ? bad : f->cudnnBackendFinalize(pack);
    bad = bad ? bad : f->cudnnBackendExecute(handle, plan, pack);
    f->cudnnBackendDestroyDescriptor(pack);
    return bad;
}
