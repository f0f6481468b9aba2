/* See fake_cublaslt.h. */

#include "tests/fake/fake_cublaslt.h"
#include "kernels/cpu/rows.h"

#include <stdlib.h>

enum { HANDLE = 0x6c740001, DESC, LAYOUT, PREFERENCE, DEAD, INVALID = 7, UNSUPPORTED = 15, ALGORITHMS = 3 };

struct object {
    int kind;
    /* a description */
    int32_t ta, tb, bias_type, compute;
    uint32_t epilogue;
    void *bias;
    const void *scale[2];
    void *aux;
    int64_t ldaux;
    int8_t fast;
    /* a layout */
    int type;
    uint64_t rows, cols;
    int64_t ld;
    /* a preference */
    uint64_t workspace;
    uint32_t schemes, align[4];
};

struct fake_lt_state *fake_lt(void)
{
    static struct fake_lt_state state;
    return &state;
}

static int wrong(const char *what)
{
    if (!fake_lt()->wrong)
        fake_lt()->wrong = what;
    return INVALID;
}

static int make(void **out, int kind)
{
    struct object *o = calloc(1, sizeof *o);
    o->kind = kind;
    *out = o;
    fake_lt()->live++;
    return 0;
}
static int drop(void *p, int kind)
{
    struct object *o = p;
    if (!o || o->kind != kind)
        return wrong("something is destroyed that isn't there");
    o->kind = DEAD;
    free(o);
    fake_lt()->live--;
    return 0;
}

static size_t version(void)
{
    return 130100;
}
static const char *status_string(int status)
{
    return status == UNSUPPORTED ? "not supported" : "invalid value";
}
static int create(void **out)
{
    return make(out, HANDLE);
}
static int destroy(void *p)
{
    return drop(p, HANDLE);
}
static int desc_create(void **out, int compute, int scale)
{
    if (compute != LT_COMPUTE_32F || scale != LT_R_32F)
        return wrong("products accumulate in fp32");
    make(out, DESC);
    ((struct object *)*out)->epilogue = LT_EPILOGUE_DEFAULT;
    ((struct object *)*out)->bias_type = -1;
    return 0;
}
static int desc_destroy(void *p)
{
    return drop(p, DESC);
}

static int desc_set(void *p, int attribute, const void *value, size_t bytes)
{
    struct object *o = p;
    if (!o || o->kind != DESC)
        return wrong("an attribute of no description");
    void *to = attribute == LT_TRANSA         ? (void *)&o->ta
               : attribute == LT_TRANSB       ? (void *)&o->tb
               : attribute == LT_EPILOGUE     ? (void *)&o->epilogue
               : attribute == LT_BIAS_POINTER ? (void *)&o->bias
               : attribute == LT_BIAS_TYPE    ? (void *)&o->bias_type
               : attribute == LT_AUX_POINTER  ? (void *)&o->aux
               : attribute == LT_AUX_LD       ? (void *)&o->ldaux
               : attribute == LT_A_SCALE_POINTER ? (void *)&o->scale[0]
               : attribute == LT_B_SCALE_POINTER ? (void *)&o->scale[1]
               : attribute == LT_FAST_ACCUM      ? (void *)&o->fast
                                                 : NULL;
    bool pointer = attribute == LT_AUX_POINTER || attribute == LT_AUX_LD || attribute == LT_BIAS_POINTER || attribute == LT_A_SCALE_POINTER || attribute == LT_B_SCALE_POINTER;
    if (!to || bytes != (pointer ? sizeof(void *) : attribute == LT_FAST_ACCUM ? 1 : 4))
        return wrong("an attribute of another size");
    memcpy(to, value, bytes);
    return 0;
}

static bool is_eight(int type)
{
    return type == LT_R_8F_E4M3 || type == LT_R_8F_E5M2;
}

static int layout_create(void **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    if ((type != LT_R_32F && type != LT_R_16BF && !is_eight(type)) || !rows || !cols || ld < (int64_t)rows)
        return wrong("a layout that cannot be");
    make(out, LAYOUT);
    struct object *o = *out;
    o->type = type;
    o->rows = rows;
    o->cols = cols;
    o->ld = ld;
    return 0;
}
static int layout_destroy(void *p)
{
    return drop(p, LAYOUT);
}
static int preference_create(void **out)
{
    return make(out, PREFERENCE);
}
static int preference_destroy(void *p)
{
    return drop(p, PREFERENCE);
}
static int preference_set(void *p, int attribute, const void *value, size_t bytes)
{
    struct object *o = p;
    bool align = attribute >= LT_ALIGN_A && attribute <= LT_ALIGN_D;
    void *to = attribute == LT_MAX_WORKSPACE       ? (void *)&o->workspace
               : attribute == LT_REDUCTION_SCHEMES ? (void *)&o->schemes
               : align                             ? (void *)&o->align[attribute - LT_ALIGN_A]
                                                   : NULL;
    if (o->kind != PREFERENCE || !to || bytes != (attribute == LT_MAX_WORKSPACE ? 8u : 4u))
        return wrong("a preference of another size");
    memcpy(to, value, bytes);
    return 0;
}

/* Operands of 8 bits as the library wants them on every GPU that has them: the first transposed, the second not, dimensions and
 * rows of 16 bytes, one of them E4M3 at least, scales on the device; our own rule is that gradients' sums are not shortened. */
static int shape_eight(const struct object *d, const struct object *a, const struct object *b, const struct object *c)
{
    bool gradient = a->type == LT_R_8F_E5M2 || b->type == LT_R_8F_E5M2;
    int64_t size = c->type == LT_R_32F ? 4 : 2;
    if (fake_lt()->lacks_eight || !is_eight(a->type) || !is_eight(b->type) || is_eight(c->type) || (a->type == LT_R_8F_E5M2 && b->type == LT_R_8F_E5M2))
        return UNSUPPORTED;
    if (!d->ta || d->tb)
        return wrong("operands of 8 bits in another layout than TN");
    if (a->rows % 16 || a->cols % 16 || b->cols % 16 || a->ld % 16 || b->ld % 16 || c->ld * size % 16)
        return wrong("operands of 8 bits whose dimensions are no multiples of 16");
    if (!d->scale[0] || !d->scale[1] || d->scale[0] == d->scale[1])
        return wrong("operands of 8 bits without scales");
    if (d->epilogue == LT_EPILOGUE_BIAS && d->bias_type != LT_R_16BF)
        return wrong("a bias that is not bf16 on a product of 8 bits");
    return gradient && d->fast ? wrong("a gradient by fast accumulation") : 0;
}

/* do the pieces fit together?  out: the product's dimensions, in column-major terms */
static int shape(const struct object *d, const struct object *a, const struct object *b, const struct object *c, uint64_t mnk[3])
{
    if (!d || !a || !b || !c || d->kind != DESC || a->kind != LAYOUT || b->kind != LAYOUT || c->kind != LAYOUT)
        return wrong("a product of what isn't there");
    mnk[0] = d->ta ? a->cols : a->rows;
    mnk[1] = d->tb ? b->rows : b->cols;
    mnk[2] = d->ta ? a->rows : a->cols;
    if (c->rows != mnk[0] || c->cols != mnk[1] || (d->tb ? b->cols : b->rows) != mnk[2])
        return wrong("shapes that do not fit");
    if (is_eight(a->type) || is_eight(b->type)) {
        int bad = shape_eight(d, a, b, c);
        if (bad)
            return bad;
    } else if (a->type != b->type || (a->type == LT_R_32F && c->type != LT_R_32F) || d->scale[0] || d->fast) {
        return UNSUPPORTED;
    }
    if (d->epilogue == LT_EPILOGUE_SUM_B)
        return !d->bias || (uintptr_t)d->bias % 16 ? wrong("a bias's gradient has no place, or one that is not aligned")
               : fake_lt()->lacks_gelu              ? UNSUPPORTED
                                                    : 0;
    bool bias = d->epilogue & LT_EPILOGUE_BIAS, back = d->epilogue == LT_EPILOGUE_DGELU;
    bool gelu = (d->epilogue & ~(uint32_t)LT_EPILOGUE_BIAS) == LT_EPILOGUE_GELU_AUX;
    if (bias && (!d->bias || d->bias_type != c->type))
        return wrong("a bias of another type than the result, or none");
    if ((gelu || back) && (!d->aux || (uintptr_t)d->aux % 16 || d->ldaux % 8 || d->ldaux < (int64_t)c->rows))
        return wrong("gelu's argument has no place, or one that is not aligned");
    if ((gelu || back) && (fake_lt()->lacks_gelu || c->type != LT_R_16BF))
        return UNSUPPORTED;
    return gelu || back || d->epilogue == LT_EPILOGUE_BIAS || d->epilogue == LT_EPILOGUE_DEFAULT ? 0 : UNSUPPORTED;
}

static int heuristic(void *handle, void *desc, void *la, void *lb, void *lc, void *ld, void *preference, int wanted,
                     struct lt_result *result, int *found)
{
    const struct object *p = preference, *h = handle;
    uint64_t mnk[3];
    int bad = shape(desc, la, lb, lc, mnk);
    if (bad || h->kind != HANDLE || lc != ld || p->kind != PREFERENCE)
        return bad ? bad : wrong("no handle, or no preference");
    fake_lt()->heuristics++;
    *found = 0;
    for (int i = 0; i < ALGORITHMS && i < wanted; i++) {
        struct lt_result *r = &result[(*found)++];
        memset(r, 0, sizeof *r);
        r->workspace_bytes = (size_t)i * 1024;
        r->state = r->workspace_bytes > p->workspace ? UNSUPPORTED : 0;
        r->algo = (struct lt_algo){{(uint64_t)i, mnk[0], mnk[1], mnk[2], p->align[0], p->align[1], p->align[2], 77}};
    }
    return 0;
}

static int check(void *handle, void *desc, void *la, void *lb, void *lc, void *ld, const struct lt_algo *algo, struct lt_result *result)
{
    uint64_t mnk[3];
    int bad = shape(desc, la, lb, lc, mnk);
    if (bad || !handle || lc != ld)
        return bad ? bad : wrong("no handle");
    if (algo->data[0] >= ALGORITHMS || algo->data[7] != 77 || memcmp(&algo->data[1], mnk, sizeof mnk) != 0)
        return UNSUPPORTED;
    result->workspace_bytes = (size_t)algo->data[0] * 1024;
    return 0;
}

static double load_eight(uint8_t code, bool e5m2)
{
    int mantissa = e5m2 ? 2 : 3, field = code >> mantissa & (e5m2 ? 31 : 15), low = code & ((1 << mantissa) - 1);
    double x = field ? ldexp(low + (1 << mantissa), field - 1) : low;
    x = (e5m2 ? field == 31 : (code & 127) == 127) ? (double)NAN : ldexp(x, e5m2 ? -16 : -9);
    return code & 128 ? -x : x;
}

static double load(const void *p, int type, size_t at)
{
    if (is_eight(type))
        return load_eight(((const uint8_t *)p)[at], type == LT_R_8F_E5M2);
    return (double)(type == LT_R_32F ? ((const float *)p)[at] : bf16_load(((const uint16_t *)p)[at]));
}

/* the tanh form, and its slope */
static double gelu(double x, bool slope)
{
    double u = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x), t = tanh(u);
    double du = sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x);
    return slope ? 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du : 0.5 * x * (1 + t);
}

/* what is stored in place of a product's element, column j and row i of it in the library's terms */
static double finish(const struct object *o, double sum, uint64_t i, uint64_t j)
{
    uint16_t *aux = o->aux;
    size_t at = j * (size_t)o->ldaux + i;
    if (o->epilogue & LT_EPILOGUE_BIAS)
        sum += load(o->bias, o->bias_type, i);
    if (o->epilogue == LT_EPILOGUE_DGELU)
        return sum * gelu((double)bf16_load(aux[at]), true);
    if ((o->epilogue & ~(uint32_t)LT_EPILOGUE_BIAS) != LT_EPILOGUE_GELU_AUX)
        return sum;
    aux[at] = bf16_round((float)sum);
    return gelu(sum, false);
}

static int matmul(void *handle, void *desc, const void *alpha, const void *a, void *la, const void *b, void *lb, const void *beta,
                  const void *c, void *lc, void *d, void *ld, const struct lt_algo *algo, void *workspace, size_t workspace_bytes,
                  cuda_stream stream)
{
    const struct object *o = desc, *x = la, *y = lb, *z = lc;
    struct lt_result needed;
    (void)stream;
    int bad = check(handle, desc, la, lb, lc, ld, algo, &needed);
    if (bad)
        return bad;
    if (c != d || workspace_bytes < needed.workspace_bytes || (uintptr_t)workspace % 256)
        return wrong("too small a workspace, or one that is not aligned");
    if ((uintptr_t)a % algo->data[4] || (uintptr_t)b % algo->data[5] || (uintptr_t)d % algo->data[6])
        return wrong("a pointer is less aligned than was promised");
    memset(workspace, 0xee, needed.workspace_bytes);
    bool eight = is_eight(x->type);
    double scale = eight ? (double)*(const float *)o->scale[0] * (double)*(const float *)o->scale[1] : 1;
    fake_lt()->eight += eight;
    fake_lt()->fast += o->fast != 0;
    if (eight && ((uintptr_t)a % 16 || (uintptr_t)b % 16 || (uintptr_t)d % 16))
        return wrong("operands of 8 bits that are not aligned");
    for (uint64_t j = 0; j < z->cols && o->epilogue == LT_EPILOGUE_SUM_B; j++) {
        double sum = 0;
        for (uint64_t k = 0; k < algo->data[3]; k++)
            sum += load(b, y->type, o->tb ? k * (size_t)y->ld + j : j * (size_t)y->ld + k);
        memcpy((uint8_t *)o->bias + j * (z->type == LT_R_32F ? 4 : 2), &(float){fake_lt()->wrong_sum ? 1e3f : (float)sum}, z->type == LT_R_32F ? 4 : 2);
    }
    for (uint64_t j = 0; j < z->cols; j++)
        for (uint64_t i = 0; i < z->rows; i++) {
            double sum = 0;
            for (uint64_t k = 0; k < algo->data[3]; k++)
                sum += load(a, x->type, o->ta ? i * (size_t)x->ld + k : k * (size_t)x->ld + i) *
                       load(b, y->type, o->tb ? k * (size_t)y->ld + j : j * (size_t)y->ld + k);
            size_t at = j * (size_t)z->ld + i;
            sum *= (double)*(const float *)alpha * scale;
            sum += *(const float *)beta != 0 ? (double)*(const float *)beta * load(c, z->type, at) : 0;
            sum = finish(o, sum, i, j);
            if (z->type == LT_R_32F)
                ((float *)d)[at] = (float)sum;
            else
                ((uint16_t *)d)[at] = bf16_round((float)sum);
        }
    static const int cost[ALGORITHMS] = {30, 10, 20};
    fake_lt()->products++;
    fake_lt()->joined += o->epilogue >= LT_EPILOGUE_GELU_AUX;
    fake_lt()->cost += cost[algo->data[0]];
    return 0;
}

struct cublaslt_functions fake_cublaslt(void)
{
    return (struct cublaslt_functions){version, status_string,  create,         destroy,           matmul,
                                       desc_create, desc_destroy, desc_set,     layout_create,     layout_destroy,
                                       preference_create, preference_destroy, preference_set, heuristic, check};
}
