/* See harness.h.  Every operand has its own mapping with a PROT_NONE page on either side, so a kernel that
 * leaves its footprint by one byte on the near side dies here; gaps between rows hold a pattern that must
 * survive. */

#include "tests/kernels/harness.h"

#include "kernels/cpu/rows.h"
#include "runtime/device.h"
#include "tests/kernels/cuda_cases.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, GAP = 3 /* elements between rows */, PATTERN = 0xa5 };

struct placed {
    uint8_t *map, *data;
    size_t map_bytes, bytes;
    enum dtype dtype;
    uint32_t ld;
};
struct mode {
    enum dtype c, g;
    bool add, high; /* high: data ends at the page behind it */
};

/* 64-bit linear congruential generator: test data only */
static double draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53 * 2 - 1;
}

static uint32_t shape_value(const struct kernel_case *c, const struct sample *s, const char *text, size_t n)
{
    const struct isa_info *info = isa_info(c->op);
    if (text[0] >= '0' && text[0] <= '9')
        return (uint32_t)atoi(text);
    for (uint32_t i = 0; i < 8 && c->dims[i].name; i++)
        if (strlen(c->dims[i].name) == n && strncmp(c->dims[i].name, text, n) == 0)
            return c->dims[i].value;
    for (uint32_t i = 0; i < info->nattrs; i++)
        if (strlen(info->attr[i].name) == n && strncmp(info->attr[i].name, text, n) == 0)
            return (uint32_t)s->attr[i].i;
    printf("\n%s: no value for shape %s\n", info->name, text);
    abort();
}

static uint32_t shape(const struct kernel_case *c, const struct sample *s, const char *text)
{
    const char *star = strchr(text, '*');
    if (!star)
        return shape_value(c, s, text, strlen(text));
    return shape_value(c, s, text, (size_t)(star - text)) * shape_value(c, s, star + 1, strlen(star + 1));
}

static enum dtype operand_dtype(const struct isa_info *info, uint32_t operand, const struct mode *m)
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

static double element_get(const struct placed *p, uint32_t i, uint32_t j)
{
    size_t at = (size_t)i * p->ld + j;
    uint32_t wide;
    float f;
    switch (p->dtype) {
    case DTYPE_F32:
        return (double)((const float *)(const void *)p->data)[at];
    case DTYPE_BF16:
        wide = (uint32_t)((const uint16_t *)(const void *)p->data)[at] << 16;
        memcpy(&f, &wide, sizeof f);
        return (double)f;
    case DTYPE_F16:
        return (double)f16_load(((const uint16_t *)(const void *)p->data)[at]);
    case DTYPE_F64:
        return ((const double *)(const void *)p->data)[at];
    case DTYPE_I32:
        return ((const int32_t *)(const void *)p->data)[at];
    case NDTYPES:
        break;
    }
    return 0;
}

static void element_set(const struct placed *p, uint32_t i, uint32_t j, double x)
{
    size_t at = (size_t)i * p->ld + j;
    float f = (float)x;
    uint32_t bits;
    switch (p->dtype) {
    case DTYPE_F32:
        ((float *)(void *)p->data)[at] = f;
        return;
    case DTYPE_BF16: /* truncation: the exact value is read back anyway */
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)(void *)p->data)[at] = (uint16_t)(bits >> 16);
        return;
    case DTYPE_F16:
        ((uint16_t *)(void *)p->data)[at] = f16_round(f);
        return;
    case DTYPE_F64:
        ((double *)(void *)p->data)[at] = x;
        return;
    case DTYPE_I32:
        ((int32_t *)(void *)p->data)[at] = (int32_t)x;
        return;
    case NDTYPES:
        break;
    }
}

static void place(struct placed *p, uint32_t rows, uint32_t cols, enum dtype dtype, bool high)
{
    uint32_t size = isa_dtype_bytes(dtype);
    p->dtype = dtype;
    p->ld = cols + (rows > 1 ? GAP : 0);
    p->bytes = ((size_t)(rows - 1) * p->ld + cols) * size;
    size_t inner = (p->bytes + PAGE - 1) / PAGE * PAGE;
    p->map_bytes = inner + 2 * PAGE;
    p->map = mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(p->map, PAGE, PROT_NONE);
    mprotect(p->map + PAGE + inner, PAGE, PROT_NONE);
    p->data = p->map + PAGE + (high ? inner - p->bytes : 0);
    memset(p->data, PATTERN, p->bytes);
}

static bool gaps_intact(const struct placed *p, uint32_t rows, uint32_t cols)
{
    uint32_t size = isa_dtype_bytes(p->dtype);
    for (uint32_t i = 0; i + 1 < rows; i++)
        for (size_t b = ((size_t)i * p->ld + cols) * size; b < (size_t)(i + 1) * p->ld * size; b++)
            if (p->data[b] != PATTERN)
                return false;
    return true;
}

static bool is_written(const struct isa_operand *o)
{
    return o->mark != MARK_READ;
}

static bool compare(const struct kernel_case *c, const struct mode *m, uint32_t i, const struct placed *p,
                    const struct sample *s, const double *before)
{
    const struct isa_operand *o = &isa_info(c->op)->operand[i];
    size_t n = (size_t)s->rows[i] * s->cols[i];
    bool add = o->mark == MARK_ADD && m->add;
    double most = 1e-3, worst = 0, tolerance = c->tolerance > 0 ? c->tolerance : 2e-6;
    if (m->c != DTYPE_F32 || m->g != DTYPE_F32)
        tolerance = p->dtype == DTYPE_BF16 ? 6e-3 : p->dtype == DTYPE_F16 ? 8e-4 : tolerance > 2e-5 ? tolerance : 2e-5;
    for (size_t e = 0; e < n; e++)
        most = isfinite(s->v[i][e]) && fabs(s->v[i][e]) > most ? fabs(s->v[i][e]) : most;
    for (size_t e = 0; e < n; e++) {
        double have = element_get(p, (uint32_t)(e / s->cols[i]), (uint32_t)(e % s->cols[i]));
        double want = is_written(o) ? s->v[i][e] + (add ? before[e] : 0) : before[e];
        double error = isfinite(want) ? fabs(have - want) / most : have == want ? 0 : INFINITY;
        worst = error > worst || isnan(error) ? error : worst;
    }
    bool fine = worst <= (is_written(o) ? tolerance : 0);
    if (!fine)
        printf("\n%s %s (C %s, G %s%s%s): error %.3g of %.3g\n", isa_info(c->op)->name, o->name,
               isa_dtype_name(m->c), isa_dtype_name(m->g), add ? ", add" : "", m->high ? ", high" : "", worst,
               tolerance);
    return fine;
}

static void set_attributes(const struct kernel_case *c, struct sample *s)
{
    const struct isa_info *info = isa_info(c->op);
    for (uint32_t i = 0; i < info->nattrs; i++)
        for (uint32_t j = 0; j < ISA_MAX_ATTRS && c->attrs[j].name; j++)
            if (strcmp(c->attrs[j].name, info->attr[i].name) == 0) {
                if (info->attr[i].kind == ATTR_REAL)
                    s->attr[i].f = c->attrs[j].value;
                else
                    s->attr[i].i = (int64_t)c->attrs[j].value;
            }
}

static void run_mode(const struct kernel_case *c, const struct mode *m)
{
    const struct isa_info *info = isa_info(c->op);
    struct sample s = {.op = c->op};
    struct placed placed[ISA_MAX_OPERANDS] = {{0}};
    struct kernel_args k = {.scratch = NULL};
    double *before[ISA_MAX_OPERANDS] = {0};
    uint64_t random = 12345 + (uint64_t)c->op;
    set_attributes(c, &s);
    memcpy(k.attr, s.attr, sizeof k.attr);
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (c->absent >> i & 1)
            continue;
        struct placed *p = &placed[i];
        s.rows[i] = shape(c, &s, info->operand[i].rows);
        s.cols[i] = shape(c, &s, info->operand[i].cols);
        size_t n = (size_t)s.rows[i] * s.cols[i];
        s.v[i] = calloc(n, sizeof **s.v);
        before[i] = calloc(n, sizeof **before);
        place(p, s.rows[i], s.cols[i], operand_dtype(info, i, m), m->high);
        for (size_t e = 0; e < n; e++) {
            double x = draw(&random);
            element_set(p, (uint32_t)(e / s.cols[i]), (uint32_t)(e % s.cols[i]),
                        p->dtype == DTYPE_I32 ? floor((x + 1) / 2 * c->integers) : x);
            s.v[i][e] = element_get(p, (uint32_t)(e / s.cols[i]), (uint32_t)(e % s.cols[i]));
        }
    }
    if (c->prepare)
        c->prepare(&s);
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (!s.v[i])
            continue;
        for (size_t e = 0; e < (size_t)s.rows[i] * s.cols[i]; e++) {
            element_set(&placed[i], (uint32_t)(e / s.cols[i]), (uint32_t)(e % s.cols[i]), s.v[i][e]);
            before[i][e] = element_get(&placed[i], (uint32_t)(e / s.cols[i]), (uint32_t)(e % s.cols[i]));
        }
        bool add = info->operand[i].mark == MARK_ADD && m->add;
        k.operand[i] =
            (struct view){placed[i].data, placed[i].dtype, add, s.rows[i], s.cols[i], placed[i].ld};
    }
    c->reference(&s);
    struct placed scratch;
    place(&scratch, 1, (uint32_t)kernel_scratch_floats(c->op, &k) + 1, DTYPE_F32, false);
    k.scratch = (float *)(void *)scratch.data;
    const char *why = kernel_check(c->op, &k);
    CU_ASSERT_PTR_NULL(why);
    device_cpu_run(c->op, &k);
    for (uint32_t i = 0; i < info->noperands; i++) {
        if (!s.v[i])
            continue;
        CU_ASSERT(compare(c, m, i, &placed[i], &s, before[i]));
        CU_ASSERT(gaps_intact(&placed[i], s.rows[i], s.cols[i]));
        munmap(placed[i].map, placed[i].map_bytes);
        free(s.v[i]);
        free(before[i]);
    }
    munmap(scratch.map, scratch.map_bytes);
}

void harness_check(const struct kernel_case *c)
{
    const enum dtype pairs[][2] = {{DTYPE_F32, DTYPE_F32}, {DTYPE_BF16, DTYPE_F32}, {DTYPE_F32, DTYPE_BF16}, {DTYPE_BF16, DTYPE_BF16},
                                   {DTYPE_F16, DTYPE_F32}, {DTYPE_F32, DTYPE_F16},  {DTYPE_F16, DTYPE_F16}};
    for (uint32_t i = 0; i < 4 * sizeof pairs / sizeof *pairs; i++)
        run_mode(c, &(struct mode){pairs[i / 4][0], pairs[i / 4][1], i & 1, i >> 1 & 1});
}

void harness_differentiate(struct sample *s, double (*objective)(const struct sample *s), uint32_t in,
                           uint32_t out)
{
    size_t n = (size_t)s->rows[in] * s->cols[in];
    for (size_t e = 0; e < n; e++) {
        const double step = 1e-5;
        double keep = s->v[in][e];
        s->v[in][e] = keep + step;
        double above = objective(s);
        s->v[in][e] = keep - step;
        double below = objective(s);
        s->v[in][e] = keep;
        s->v[out][e] = (above - below) / (2 * step);
    }
}

/* get_slopes() of the authors' repository: a geometric row of ratio 2^(-2^-(log2 n - 3)) where n is a power of 2, else that of
 * the power below, then every second one of the power above */
double harness_slope(int64_t n, int64_t h)
{
    if (n < 1)
        return 0;
    double power = floor(log2((double)n)), closest = exp2(power), more = (double)h - closest;
    double start = more < 0 ? pow(2, -pow(2, -(power - 3))) : pow(2, -pow(2, -(power + 1 - 3)));
    return start * pow(start, more < 0 ? (double)h : 2 * more);
}
