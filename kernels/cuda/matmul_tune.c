/* Which of cuBLASLt's algorithms a product uses: measured once per device, shape and version of the library, and kept.
 *
 * Candidates are the library's own suggestions.  Each runs on the instruction's operands, filled with random numbers, a
 * few times between two events; one whose first run takes twice the best time so far gets no more.  Splits of the
 * summed dimension are allowed where partial sums meet in the workspace in a fixed order and in fp32.  The cache is a
 * text file, one product a line, appended by one write per line so that ranks may share it; lines that do not parse, or
 * whose algorithm the library refuses for the shape, count as absent.  $LLMC_CACHE, $XDG_CACHE_HOME/llmc or
 * ~/.cache/llmc. */

#include "kernels/cuda/products.h"
#include "runtime/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CANDIDATES = 16, RUNS = 10, LINE_BYTES = 512, PATH_BYTES = 1024 };

struct product_cache {
    struct product_plan **plan;
    size_t nplans, room;
    char path[PATH_BYTES]; /* empty = no file */
};

static uint16_t alignment(const void *p)
{
    uintptr_t bits = (uintptr_t)p;
    return (uint16_t)(bits % 256 == 0 ? 256 : bits & (~bits + 1));
}

static struct product_key key_of(const struct product *p)
{
    struct product_key k;
    memset(&k, 0, sizeof k);
    k.m = p->m;
    k.n = p->n;
    k.k = p->k;
    k.lda = p->a.ld;
    k.ldb = p->b.ld;
    k.ldc = p->c.ld;
    k.align_a = alignment(p->a.data);
    k.align_b = alignment(p->b.data);
    k.align_c = alignment(p->c.data);
    k.dtype = !p->eight ? (uint8_t)p->a.dtype : p->gradient ? PRODUCT_EIGHT_GRADIENT : PRODUCT_EIGHT;
    k.dtype_c = (uint8_t)p->c.dtype;
    k.ta = p->ta;
    k.tb = p->tb;
    k.bias = p->bias.data != NULL;
    k.add = p->c.add;
    k.act = (uint8_t)p->act;
    k.ldaux = p->act && p->act != PRODUCT_BIAS_SUM ? p->aux.ld : 0;
    return k;
}

static int lt_type(enum dtype d)
{
    return d == DTYPE_F32 ? LT_R_32F : LT_R_16BF;
}

/* ---- the file ---- */

static void folder_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(path, 0777);
        *slash = '/';
    }
}

static void cache_path(char *out, size_t size)
{
    const char *own = getenv("LLMC_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (own && *own)
        n = snprintf(out, size, "%s/products.txt", own);
    else if (xdg && *xdg == '/')
        n = snprintf(out, size, "%s/llmc/products.txt", xdg);
    else if (home && *home == '/')
        n = snprintf(out, size, "%s/.cache/llmc/products.txt", home);
    if (n < 0 || (size_t)n >= size)
        *out = 0;
}

/* what a line begins with: the device, the library, the product */
static void key_text(const struct cuda_libraries *l, const struct product_key *k, char *out, size_t size)
{
    char name[sizeof l->device_name];
    snprintf(name, sizeof name, "%s", l->device_name);
    for (char *c = name; *c; c++)
        *c = *c <= ' ' ? '_' : *c;
    snprintf(out, size, "%s sm%d x%d lt%zu m%u n%u k%u ld%u,%u,%u align%u,%u,%u type%u,%u %c%c bias%u add%u act%u,%u =",
             *name ? name : "device", l->sm, l->multiprocessors, l->lt.cublasLtGetVersion(), k->m, k->n, k->k, k->lda,
             k->ldb, k->ldc, (unsigned)k->align_a, (unsigned)k->align_b, (unsigned)k->align_c, (unsigned)k->dtype,
             (unsigned)k->dtype_c, k->ta ? 'T' : 'N', k->tb ? 'T' : 'N', (unsigned)k->bias, (unsigned)k->add,
             (unsigned)k->act, k->ldaux);
}

static uint64_t line_sum(const char *text, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)text[i]) * 0x100000001b3u;
    return h;
}

/* the rest of a line: eight words, the workspace, microseconds, the sum of all before */
static bool line_parse(const char *line, size_t head, struct product_plan *plan)
{
    const char *at = line + head;
    int used = 0;
    for (int i = 0; i < 8; i++, at += used)
        if (sscanf(at, " %" SCNx64 "%n", &plan->algo.data[i], &used) != 1)
            return false;
    uint64_t sum;
    size_t bytes;
    float us;
    if (sscanf(at, " %zu %f%n", &bytes, &us, &used) != 2 || bytes > WORKSPACE_PRODUCT)
        return false;
    size_t summed = (size_t)(at + used - line);
    if (sscanf(at + used, " %" SCNx64, &sum) != 1 || sum != line_sum(line, summed))
        return false;
    plan->workspace_bytes = bytes;
    plan->measured_us = us;
    return true;
}

static bool file_find(const struct cuda_libraries *l, struct product_plan *plan)
{
    char want[LINE_BYTES], line[LINE_BYTES];
    key_text(l, &plan->key, want, sizeof want);
    size_t head = strlen(want);
    FILE *f = NULL;
    bool found = false;
    if (l->products->path[0])
        (void)file_read(l->products->path, &f); /* without one it is measured */
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, want, head) == 0 && line_parse(line, head, plan);
    if (f)
        fclose(f);
    return found;
}

static void file_add(struct cuda_libraries *l, const struct product_plan *plan)
{
    char line[LINE_BYTES];
    if (!l->products->path[0])
        return;
    key_text(l, &plan->key, line, sizeof line);
    size_t n = strlen(line);
    for (int i = 0; i < 8; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, " %" PRIx64, plan->algo.data[i]);
    n += (size_t)snprintf(line + n, sizeof line - n, " %zu %.2f", plan->workspace_bytes, (double)plan->measured_us);
    n += (size_t)snprintf(line + n, sizeof line - n, " %" PRIx64 "\n", line_sum(line, n));
    if (n >= sizeof line)
        return;
    folder_make(l->products->path);
    if (file_not_file(l->products->path))
        return;
    int fd = open(l->products->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return; /* the next run measures again */
    while (write(fd, line, n) < 0 && errno == EINTR)
        continue;
    close(fd);
}

/* ---- descriptors ---- */

static void plan_free(struct cuda_libraries *l, struct product_plan *plan)
{
    if (!plan)
        return;
    if (plan->desc)
        l->lt.cublasLtMatmulDescDestroy(plan->desc);
    if (plan->layout_a)
        l->lt.cublasLtMatrixLayoutDestroy(plan->layout_a);
    if (plan->layout_b)
        l->lt.cublasLtMatrixLayoutDestroy(plan->layout_b);
    if (plan->layout_c)
        l->lt.cublasLtMatrixLayoutDestroy(plan->layout_c);
    free(plan);
}

void product_cache_free(struct cuda_libraries *l)
{
    if (!l->products)
        return;
    for (size_t i = 0; i < l->products->nplans; i++)
        plan_free(l, l->products->plan[i]);
    free(l->products->plan);
    free(l->products);
    l->products = NULL;
}

/* a row-major view is a column-major matrix of its columns by its rows */
static int layout_make(const struct cuda_libraries *l, void **out, const struct view *v, int type)
{
    return l->lt.cublasLtMatrixLayoutCreate(out, type, v->cols, v->rows, v->ld);
}

/* Scales' pointers are set once more at every launch.  Fast accumulation keeps fewer bits of sums. */
static int describe_eight(const struct cuda_libraries *l, const struct product *p, struct product_plan *plan)
{
    int8_t fast = !p->gradient;
    int bad = l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_A_SCALE_POINTER, &p->scale_b, sizeof p->scale_b);
    bad = bad ? bad
              : l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_B_SCALE_POINTER, &p->scale_a, sizeof p->scale_a);
    return bad ? bad : l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_FAST_ACCUM, &fast, sizeof fast);
}

int product_aux_attribute(enum product_act act)
{
    return act == PRODUCT_BIAS_SUM ? LT_BIAS_POINTER : LT_AUX_POINTER;
}

static uint32_t epilogue_of(const struct product *p)
{
    uint32_t bias = p->bias.data ? LT_EPILOGUE_BIAS : 0;
    switch (p->act) {
    case PRODUCT_GELU:
        return LT_EPILOGUE_GELU_AUX | bias;
    case PRODUCT_GELU_SLOPE:
        return LT_EPILOGUE_DGELU;
    case PRODUCT_BIAS_SUM: /* our a is its second operand */
        return LT_EPILOGUE_SUM_B;
    case PRODUCT_PLAIN:
        break;
    }
    return bias ? bias : LT_EPILOGUE_DEFAULT;
}

static int describe(const struct cuda_libraries *l, const struct product *p, struct product_plan *plan)
{
    int32_t first = p->tb ? LT_OP_T : LT_OP_N, second = p->ta ? LT_OP_T : LT_OP_N;
    int32_t type = lt_type(p->c.dtype);
    uint32_t epilogue = epilogue_of(p);
    int64_t ldaux = p->aux.ld;
    int bad = l->lt.cublasLtMatmulDescCreate(&plan->desc, LT_COMPUTE_32F, LT_R_32F);
    int type_a = !p->eight ? lt_type(p->a.dtype) : p->gradient ? LT_R_8F_E5M2 : LT_R_8F_E4M3;
    bad = bad ? bad : layout_make(l, &plan->layout_a, &p->b, p->eight ? LT_R_8F_E4M3 : lt_type(p->b.dtype));
    bad = bad ? bad : layout_make(l, &plan->layout_b, &p->a, type_a);
    bad = bad ? bad : layout_make(l, &plan->layout_c, &p->c, type);
    if (p->eight && !bad)
        bad = describe_eight(l, p, plan);
    bad = bad ? bad : l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_TRANSA, &first, sizeof first);
    bad = bad ? bad : l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_TRANSB, &second, sizeof second);
    bad = bad ? bad : l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_EPILOGUE, &epilogue, sizeof epilogue);
    if (p->bias.data && !bad)
        bad = l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_BIAS_POINTER, &p->bias.data, sizeof p->bias.data);
    if (p->bias.data && !bad)
        bad = l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_BIAS_TYPE, &type, sizeof type);
    if (p->act && !bad)
        bad = l->lt.cublasLtMatmulDescSetAttribute(plan->desc, product_aux_attribute(p->act), &p->aux.data,
                                                   sizeof p->aux.data);
    if (p->act == PRODUCT_BIAS_SUM) /* of the result's type, which is the default */
        return bad;
    if (p->act && !bad)
        bad = l->lt.cublasLtMatmulDescSetAttribute(plan->desc, LT_AUX_LD, &ldaux, sizeof ldaux);
    return bad;
}

static int preferences(const struct cuda_libraries *l, const struct product_key *k, size_t workspace_bytes, void **out)
{
    uint64_t workspace = workspace_bytes < WORKSPACE_PRODUCT ? workspace_bytes : WORKSPACE_PRODUCT;
    uint32_t schemes = LT_SUMS_IN_FP32 | (k->dtype_c == DTYPE_F32 ? LT_SUMS_IN_RESULT : 0),
             align[4] = {k->align_b, k->align_a, k->align_c, k->align_c};
    int bad = l->lt.cublasLtMatmulPreferenceCreate(out);
    bad = bad ? bad : l->lt.cublasLtMatmulPreferenceSetAttribute(*out, LT_MAX_WORKSPACE, &workspace, sizeof workspace);
    bad = bad ? bad : l->lt.cublasLtMatmulPreferenceSetAttribute(*out, LT_REDUCTION_SCHEMES, &schemes, sizeof schemes);
    for (int i = 0; i < 4 && !bad; i++)
        bad = l->lt.cublasLtMatmulPreferenceSetAttribute(*out, LT_ALIGN_A + i, &align[i], sizeof align[i]);
    return bad;
}

/* ---- measuring ---- */

static bool wait_for(const struct cuda_runtime *r, cuda_event e)
{
    int state;
    while ((state = cuda_poll_event(r, e)) == CUDA_NOT_READY)
        continue;
    return state == CUDA_OK;
}

/* microseconds of one of n runs, negative if one fails */
static float time_runs(const struct cuda_call *c, const struct product *p, struct product_plan *plan, int n,
                       cuda_event from, cuda_event to)
{
    const struct cuda_runtime *r = c->libraries->runtime;
    float ms = -1;
    if (r->EventRecord(from, c->stream))
        return -1;
    for (int i = 0; i < n; i++)
        if (product_launch(c, p, plan))
            return -1;
    if (r->EventRecord(to, c->stream) || !wait_for(r, to) || r->EventElapsedTime(&ms, from, to))
        return -1;
    return ms * 1000 / (float)n;
}

static void measure_candidates(const struct cuda_call *c, const struct product *p, struct product_plan *plan,
                               const struct lt_result *found, int n, cuda_event from, cuda_event to)
{
    struct product_plan best = *plan, one = *plan;
    best.measured_us = 0;
    for (int i = 0; i < n; i++) {
        if (found[i].state || found[i].workspace_bytes > c->workspace_bytes)
            continue;
        one.algo = found[i].algo;
        one.workspace_bytes = found[i].workspace_bytes;
        float first = time_runs(c, p, &one, 1, from, to); /* loads the kernel */
        first = first < 0 ? first : time_runs(c, p, &one, 1, from, to);
        if (first < 0 || (best.measured_us > 0 && first > 2 * best.measured_us))
            continue;
        one.measured_us = time_runs(c, p, &one, RUNS, from, to);
        if (one.measured_us > 0 && (best.measured_us <= 0 || one.measured_us < best.measured_us))
            best = one;
    }
    *plan = best;
}

static void measure(const struct cuda_call *c, const struct product *p, struct product_plan *plan,
                    const struct lt_result *found, int n)
{
    const struct cuda_runtime *r = c->libraries->runtime;
    cuda_event from = NULL, to = NULL;
    if (!r || (!p->eight && (product_fill(c, &p->a, 1) || product_fill(c, &p->b, 2))) ||
        (p->c.add && product_fill(c, &p->c, 3)) || (p->bias.data && product_fill(c, &p->bias, 4)) ||
        (p->act == PRODUCT_GELU_SLOPE && product_fill(c, &p->aux, 5)))
        return;
    if (!r->EventCreateWithFlags(&from, CUDA_EVENT_PLAIN) && !r->EventCreateWithFlags(&to, CUDA_EVENT_PLAIN))
        measure_candidates(c, p, plan, found, n, from, to);
    if (from)
        r->EventDestroy(from);
    if (to)
        r->EventDestroy(to);
    if (plan->measured_us > 0)
        file_add(c->libraries, plan);
}

/* ---- choosing ---- */

static bool suggested(const struct cuda_call *c, struct product_plan *plan, struct lt_result *found, int *n)
{
    const struct cuda_libraries *l = c->libraries;
    void *preference = NULL;
    int bad = preferences(l, &plan->key, c->workspace_bytes, &preference);
    bad = bad ? bad
              : l->lt.cublasLtMatmulAlgoGetHeuristic(l->lt_handle, plan->desc, plan->layout_a, plan->layout_b,
                                                     plan->layout_c, plan->layout_c, preference, CANDIDATES, found, n);
    if (preference)
        l->lt.cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < *n && !bad; i++)
        if (!found[i].state) {
            plan->algo = found[i].algo;
            plan->workspace_bytes = found[i].workspace_bytes;
            return true;
        }
    return false;
}

static bool choose(const struct cuda_call *c, const struct product *p, struct product_plan *plan, bool by_time)
{
    struct cuda_libraries *l = c->libraries;
    struct lt_result found[CANDIDATES], checked;
    int n = 0;
    if (file_find(l, plan) && plan->workspace_bytes <= c->workspace_bytes &&
        !l->lt.cublasLtMatmulAlgoCheck(l->lt_handle, plan->desc, plan->layout_a, plan->layout_b, plan->layout_c,
                                       plan->layout_c, &plan->algo, &checked) &&
        checked.workspace_bytes <= plan->workspace_bytes)
        return true;
    plan->measured_us = 0;
    if (!suggested(c, plan, found, &n))
        return false;
    if (by_time)
        measure(c, p, plan, found, n);
    return true;
}

static bool cache_open(struct cuda_libraries *l)
{
    if (l->products)
        return true;
    l->products = (struct product_cache *)calloc(1, sizeof *l->products);
    if (l->products)
        cache_path(l->products->path, sizeof l->products->path);
    return l->products != NULL;
}

static bool cache_room(struct product_cache *cache)
{
    if (cache->nplans < cache->room)
        return true;
    size_t room = cache->room ? 2 * cache->room : 64;
    struct product_plan **more = (struct product_plan **)realloc(cache->plan, room * sizeof *more);
    if (!more)
        return false;
    cache->plan = more;
    cache->room = room;
    return true;
}

struct product_plan *product_plan_get(const struct cuda_call *c, const struct product *p, bool by_time)
{
    struct cuda_libraries *l = c->libraries;
    struct product_key key = key_of(p);
    snprintf(l->error, sizeof l->error, "out of memory");
    if (!cache_open(l) || !cache_room(l->products))
        return NULL;
    for (size_t i = 0; i < l->products->nplans; i++)
        if (memcmp(&l->products->plan[i]->key, &key, sizeof key) == 0)
            return l->products->plan[i];
    struct product_plan *plan = (struct product_plan *)calloc(1, sizeof *plan);
    if (!plan)
        return NULL;
    plan->key = key;
    if (describe(l, p, plan) || !choose(c, p, plan, by_time)) {
        plan_free(l, plan);
        snprintf(l->error, sizeof l->error, "cuBLASLt has no algorithm for a product of %u x %u x %u", p->m, p->n,
                 p->k);
        return NULL;
    }
    l->products->plan[l->products->nplans++] = plan;
    return plan;
}
