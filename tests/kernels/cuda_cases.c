/* See cuda_cases.h. */

#include "tests/kernels/cuda_table.h"
#include "kernels/cpu/rows.h"
#include "kernels/cuda/cuda_kernels.h"
#include "runtime/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIMS = 6, MOST_SET = 12 }; /* of struct cuda_shape */
enum layout { DENSE, GAPS, CROOKED, NLAYOUTS };

struct mode {
    enum dtype c, g;
    bool add;
    enum layout layout;
};


#define VIEW(op, name) (&k->operand[OPND(op, name)])

double cuda_cases_draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 12) + 0.5) * 0x1p-52;
}

double cuda_cases_get(const struct view *v, uint32_t i, uint32_t j)
{
    size_t at = (size_t)i * v->ld + j;
    uint32_t wide;
    float f;
    switch (v->dtype) {
    case DTYPE_F32:
        return (double)((const float *)v->data)[at];
    case DTYPE_BF16:
        wide = (uint32_t)((const uint16_t *)v->data)[at] << 16;
        memcpy(&f, &wide, sizeof f);
        return (double)f;
    case DTYPE_F16:
        return (double)f16_load(((const uint16_t *)v->data)[at]);
    case DTYPE_F64:
        return ((const double *)v->data)[at];
    case DTYPE_I32:
        return ((const int32_t *)v->data)[at];
    case NDTYPES:
        break;
    }
    return 0;
}

void cuda_cases_set(const struct view *v, uint32_t i, uint32_t j, double x)
{
    size_t at = (size_t)i * v->ld + j;
    float f = (float)x;
    uint32_t bits;
    switch (v->dtype) {
    case DTYPE_F32:
        ((float *)v->data)[at] = f;
        return;
    case DTYPE_BF16:
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)v->data)[at] = (uint16_t)(bits >> 16);
        return;
    case DTYPE_F16:
        ((uint16_t *)v->data)[at] = f16_round(f);
        return;
    case DTYPE_F64:
        ((double *)v->data)[at] = x;
        return;
    case DTYPE_I32:
        ((int32_t *)v->data)[at] = (int32_t)x;
        return;
    case NDTYPES:
        break;
    }
}

/* one run's operands on the host, and the same on the device */
struct set {
    struct kernel_args k;
    uint8_t *host[ISA_MAX_OPERANDS], *before[ISA_MAX_OPERANDS], *device[ISA_MAX_OPERANDS], *second[ISA_MAX_OPERANDS];
    size_t bytes[ISA_MAX_OPERANDS], offset[ISA_MAX_OPERANDS];
};

static uint32_t dim(const struct cuda_shape *c, const char *text, size_t n)
{
    if (text[0] >= '0' && text[0] <= '9')
        return (uint32_t)atoi(text);
    for (uint32_t i = 0; i < MOST_DIMS && c->dims[i].name; i++)
        if (strlen(c->dims[i].name) == n && strncmp(c->dims[i].name, text, n) == 0)
            return c->dims[i].value;
    for (uint32_t i = 0; i < MOST_SET && c->attrs[i].name; i++)
        if (strlen(c->attrs[i].name) == n && strncmp(c->attrs[i].name, text, n) == 0)
            return (uint32_t)c->attrs[i].value;
    printf("\n%s: no value for %s\n", isa_info(c->op)->name, text);
    abort();
}

static uint32_t extent(const struct cuda_shape *c, const char *text)
{
    const char *star = strchr(text, '*');
    return star ? dim(c, text, (size_t)(star - text)) * dim(c, star + 1, strlen(star + 1)) : dim(c, text, strlen(text));
}

bool cuda_cases_other(const struct isa_info *info, uint32_t operand)
{
    bool later = false;
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (info->operand[i].dtype == 'C')
            return false;
        later |= i < operand && info->operand[i].dtype == 'G';
    }
    return later && info->operand[operand].dtype == 'G';
}

static enum dtype dtype_of(const struct isa_info *info, uint32_t operand, const struct mode *m)
{
    if (cuda_cases_other(info, operand))
        return m->c;
    switch (info->operand[operand].dtype) {
    case 'C':
        return m->c;
    case 'G':
    case 'A':
        return m->g;
    case 'I':
        return DTYPE_I32;
    case 'D':
        return DTYPE_F64;
    default:
        return DTYPE_F32;
    }
}

static void make_operand(const struct cuda_case *c, const struct mode *m, struct set *s, uint32_t i, uint64_t *random)
{
    const struct isa_info *info = isa_info(c->shape.op);
    const struct isa_operand *o = &info->operand[i];
    uint32_t rows = extent(&c->shape, o->rows), cols = extent(&c->shape, o->cols);
    enum dtype dtype = c->words && o->dtype == 'A' ? DTYPE_I32 : dtype_of(info, i, m);
    uint32_t size = isa_dtype_bytes(dtype), gap = m->layout == GAPS ? 16 - cols % 8 : m->layout == CROOKED ? 3 : 0;
    uint32_t ld = cols + (rows > 1 ? gap : 0);
    bool add = o->mark == MARK_ADD && m->add;
    s->offset[i] = m->layout == CROOKED ? size : 0;
    s->bytes[i] = ((size_t)(rows - 1) * ld + cols) * size + s->offset[i];
    s->host[i] = aligned_alloc(64, (s->bytes[i] + 63) / 64 * 64);
    memset(s->host[i], 0xff, s->bytes[i]);
    s->k.operand[i] = (struct view){s->host[i] + s->offset[i], dtype, add, rows, cols, ld};
    for (uint32_t r = 0; r < rows && (o->mark != MARK_WRITE && (o->mark != MARK_ADD || add)); r++)
        for (uint32_t j = 0; j < cols; j++) {
            double x = cuda_cases_draw(random), sign = cuda_cases_draw(random) < 0.5 ? -1 : 1;
            cuda_cases_set(&s->k.operand[i], r, j, dtype == DTYPE_I32 ? floor(c->shape.low + x * ((double)c->shape.high - c->shape.low)) : sign * (0.01 + x));
        }
}

static void set_attributes(const struct cuda_shape *c, struct kernel_args *k)
{
    const struct isa_info *info = isa_info(c->op);
    for (uint32_t i = 0; i < info->nattrs; i++)
        for (uint32_t j = 0; j < MOST_SET && c->attrs[j].name; j++)
            if (strcmp(c->attrs[j].name, info->attr[i].name) == 0) {
                if (info->attr[i].kind == ATTR_REAL)
                    k->attr[i].f = c->attrs[j].value;
                else
                    k->attr[i].i = (int64_t)c->attrs[j].value;
            }
}

void cuda_cases_views(const struct cuda_shape *s, uint32_t absent, enum dtype c, enum dtype g, struct kernel_args *k)
{
    const struct isa_info *info = isa_info(s->op);
    const struct mode m = {c, g, false, DENSE};
    memset(k, 0, sizeof *k);
    set_attributes(s, k);
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (absent >> i & 1)
            continue;
        uint32_t rows = extent(s, info->operand[i].rows), cols = extent(s, info->operand[i].cols);
        k->operand[i] = (struct view){NULL, dtype_of(info, i, &m), false, rows, cols, cols};
    }
}

/* device memory with the operands as they were, a poisoned workspace, one call; what it left comes back into out */
static const char *run_device(const struct cuda_place *p, const struct cuda_case *c, const struct set *s, const int32_t *staged,
                              size_t nstaged, int run, uint8_t *const *out)
{
    struct kernel_args k = s->k;
    struct cuda_call call = {.args = &k};
    void *memory[ISA_MAX_OPERANDS] = {0}, *ids = NULL;
    size_t need = cuda_workspace_bytes(c->shape.op, &s->k, 90);
    uint8_t *poison = malloc(need + 1);
    memset(poison, run ? 0x5a : 0xff, need + 1);
    for (uint32_t i = 0; i < isa_info(c->shape.op)->noperands; i++)
        if (s->bytes[i]) {
            memory[i] = p->make(s->bytes[i]);
            p->store(memory[i], s->before[i], s->bytes[i]);
            k.operand[i].data = (uint8_t *)memory[i] + s->offset[i];
        }
    call.workspace = p->make(need ? need : 1);
    call.workspace_bytes = need;
    p->store(call.workspace, poison, need);
    if (staged) {
        ids = p->make(nstaged * sizeof *staged);
        p->store(ids, staged, nstaged * sizeof *staged);
        call.staged = ids;
    }
    const char *why = cuda_stream_check(c->shape.op, &s->k);
    why = why ? why : p->launch(c->shape.op, &call);
    const char *late = p->finish(run);
    for (uint32_t i = 0; i < isa_info(c->shape.op)->noperands; i++)
        if (s->bytes[i]) {
            p->fetch(out[i], memory[i], s->bytes[i]);
            p->drop(memory[i]);
        }
    p->drop(call.workspace);
    if (ids)
        p->drop(ids);
    free(poison);
    return why ? why : late;
}

/* the largest difference over the largest value; both NaN, or the same infinity, is none */
static double difference(const struct view *want, const struct view *have)
{
    double most = 1e-3, worst = 0;
    EACH(want, i, j)
    {
        double a = cuda_cases_get(want, i, j), b = cuda_cases_get(have, i, j);
        most = isfinite(a) && fabs(a) > most ? fabs(a) : most;
        if (!isfinite(a) || !isfinite(b)) {
            if (!(a == b || (isnan(a) && isnan(b))))
                return INFINITY;
        } else if (fabs(a - b) > worst) {
            worst = fabs(a - b);
        }
    }
    return worst / most;
}

/* bytes between rows and before the first are as they were */
static bool gaps_kept(const struct view *v, const uint8_t *before, const uint8_t *after, size_t bytes, size_t offset)
{
    size_t row = (size_t)v->ld * isa_dtype_bytes(v->dtype), used = (size_t)v->cols * isa_dtype_bytes(v->dtype);
    for (size_t b = 0; b < bytes; b++)
        if ((b < offset || (b - offset) % row >= used) && before[b] != after[b])
            return false;
    return true;
}

static bool compare(const struct cuda_case *c, const struct mode *m, const struct set *s, uint32_t i)
{
    const struct isa_info *info = isa_info(c->shape.op);
    const struct isa_operand *o = &info->operand[i];
    const struct view *want = &s->k.operand[i];
    struct view have = *want;
    have.data = s->device[i] + s->offset[i];
    double tolerance = c->tolerance > 0 ? c->tolerance : 2e-6, error = 0;
    if (want->dtype == DTYPE_BF16)
        tolerance = 4.5e-3; /* one unit in the last place, where the CPU's fp64 sums round the other way */
    if (want->dtype == DTYPE_I32)
        tolerance = 0;
    const char *wrong = NULL;
    if (o->mark == MARK_READ && memcmp(s->before[i], s->device[i], s->bytes[i]) != 0)
        wrong = "an operand that is read was written";
    else if (!gaps_kept(want, s->before[i], s->device[i], s->bytes[i], s->offset[i]))
        wrong = "memory between rows was written";
    else if (memcmp(s->device[i], s->second[i], s->bytes[i]) != 0)
        wrong = "a second run gave other bits";
    else if ((error = difference(want, &have)) > tolerance)
        wrong = "differs from the CPU";
    if (wrong)
        printf("\n    %s %s %u x %u (C %s, G %s%s, layout %d): %s, error %.3g of %.3g\n", isa_info(c->shape.op)->name, o->name,
               want->rows, want->cols, isa_dtype_name(m->c), isa_dtype_name(m->g), m->add ? ", add" : "", (int)m->layout, wrong,
               error, tolerance);
    return !wrong;
}

/* what the host stages for the call, or NULL; TOKENS' reference is that itself */
static int32_t *stage(const struct cuda_case *c, struct set *s, uint64_t *random, size_t *n)
{
    const struct kernel_args *k = &s->k;
    *n = 0;
    if (c->staged == STAGED_NONE)
        return NULL;
    const struct view *shape = c->staged == STAGED_ROUTING ? VIEW(ROUTE, index) : k->operand[0].data ? &k->operand[0] : &k->operand[1];
    *n = c->staged == STAGED_ROUTING ? (size_t)shape->rows * shape->cols : 2 * (size_t)shape->rows;
    int32_t *ids = malloc(*n * sizeof *ids);
    for (size_t e = 0; e < *n; e++)
        ids[e] = (int32_t)(cuda_cases_draw(random) * 1000);
    for (uint32_t i = 0; i < 2 && c->staged == STAGED_IDS; i++)
        for (uint32_t r = 0; r < shape->rows && k->operand[i].data; r++)
            cuda_cases_set(&k->operand[i], r, 0, ids[(size_t)i * shape->rows + r]);
    if (c->staged == STAGED_ROUTING) /* the CPU's own choices, but for one token none */
        for (size_t e = 0; e < *n; e++)
            ids[e] = e / shape->cols == 3 ? -1 : (int32_t)cuda_cases_get(shape, (uint32_t)(e / shape->cols), (uint32_t)(e % shape->cols));
    return ids;
}

static bool run_case(const struct cuda_place *p, const struct cuda_case *c, const struct mode *m)
{
    const struct isa_info *info = isa_info(c->shape.op);
    struct set s = {.k = {.scratch = NULL}};
    uint64_t random = 4711 + (uint64_t)c->shape.op;
    size_t nstaged;
    set_attributes(&c->shape, &s.k);
    for (uint32_t i = 0; i < info->noperands; i++)
        if (!(c->absent >> i & 1))
            make_operand(c, m, &s, i, &random);
    if (c->prepare)
        c->prepare(&s.k, &random);
    for (uint32_t i = 0; i < info->noperands; i++)
        if (s.bytes[i]) {
            s.before[i] = memcpy(malloc(s.bytes[i]), s.host[i], s.bytes[i]);
            s.device[i] = malloc(s.bytes[i] + 8);
            s.second[i] = malloc(s.bytes[i]);
        }
    size_t floats = kernel_scratch_floats(c->shape.op, &s.k) + 16;
    s.k.scratch = aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64);
    memset(s.k.scratch, 0xff, floats * sizeof(float));
    const char *why = kernel_check(c->shape.op, &s.k);
    if (!why && c->staged != STAGED_IDS)
        device_cpu_run(c->shape.op, &s.k);
    int32_t *staged = stage(c, &s, &random, &nstaged);
    why = why ? why : run_device(p, c, &s, staged, nstaged, 0, s.device);
    why = why ? why : run_device(p, c, &s, staged, nstaged, 1, s.second);
    bool fine = !why;
    if (why)
        printf("\n    %s: %s\n", info->name, why);
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (s.bytes[i] && fine)
            fine = compare(c, m, &s, i);
        free(s.host[i]);
        free(s.before[i]);
        free(s.device[i]);
        free(s.second[i]);
    }
    free(staged);
    free(s.k.scratch);
    return fine;
}

/* does the row have operands of these kinds? */
static bool has_letter(const struct isa_info *info, const char *letters)
{
    for (uint32_t i = 0; i < info->noperands; i++)
        if (strchr(letters, info->operand[i].dtype))
            return true;
    return false;
}
static bool has_add(const struct isa_info *info)
{
    for (uint32_t i = 0; i < info->noperands; i++)
        if (info->operand[i].mark == MARK_ADD)
            return true;
    return false;
}

/* memory-bound rows without a case: products and attention have tests of their own, with what belongs to them; SEAM computes nothing */
static unsigned count_missing(const char *filter)
{
    unsigned missing = 0;
    for (enum op op = 0; op < NOPS; op++) {
        const struct isa_info *info = isa_info(op);
        bool found = (info->unit != UNIT_STREAM && info->unit != UNIT_HOST) || op == OP_SEAM || op == OP_ATTENTION_MERGE ||
                     op == OP_GROUPED_BIAS_W ||
                     (filter && !strstr(info->name, filter));
        for (size_t i = 0; i < cuda_table_length; i++)
            found |= cuda_table[i].shape.op == op;
        if (!found)
            printf("\n    %s has no case in cuda_table.c or elements.def", info->name);
        missing += !found;
    }
    return missing;
}

unsigned cuda_cases_check(const struct cuda_place *p, const char *filter, unsigned *nruns)
{
    const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16};
    unsigned failed = count_missing(filter);
    *nruns = 0;
    for (size_t i = 0; i < cuda_table_length; i++) {
        const struct isa_info *info = isa_info(cuda_table[i].shape.op);
        if (filter && !strstr(info->name, filter))
            continue;
        for (unsigned bits = 0; bits < 8 * NLAYOUTS; bits++) {
            struct mode m = {dtypes[bits & 1], dtypes[bits >> 1 & 1], bits >> 2 & 1, (enum layout)(bits >> 3)};
            if ((m.c != DTYPE_F32 && !has_letter(info, "CG")) || (m.g != DTYPE_F32 && !has_letter(info, "GA")) || (m.add && !has_add(info)))
                continue;
            failed += !run_case(p, &cuda_table[i], &m);
            ++*nruns;
        }
    }
    return failed;
}
