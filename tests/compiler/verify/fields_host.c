/* What the host does with a plan beside replaying it, through the runtime's own functions: weights are filled
 * in by rule and from a file, and saved again; numbers of the job, of routings and of 8-bit products are
 * compared as they stand.  A changed plan must leave every rank's every persistent byte, and the saved file,
 * as they were. */

#include "runtime/weights.h"
#include "tests/compiler/verify/fields.h"

#include <stdlib.h>
#include <unistd.h>

struct image {
    uint8_t *initial, *loaded; /* persistent buffers of a rank, one behind the other */
    size_t bytes;
};
struct fields_host {
    const struct plan *plan;
    char folder[256];
    struct safetensors *source;
    struct weight_files *saved;
    struct weight_plan *catalog;
    uint32_t n;
    _Atomic uint64_t *covered;
    struct image *images; /* by rank */
};

static uint64_t arena_of(const struct plan *p, uint32_t rank)
{
    uint32_t role = p->ranks->ranks[rank].role;
    uint64_t t = p->train[role]->arena_bytes, e = p->eval[role]->arena_bytes;
    return (t > e ? t : e) + 1;
}

static bool persists(const struct buffer *b)
{
    return b->bucket != NONE && b->kind != BUFFER_STEP;
}

/* a rank's persistent bytes as they are filled in; NULL after a failure */
static uint8_t *fill(const struct plan *p, uint32_t rank, const struct safetensors *from, uint8_t *arena, size_t *bytes,
                     struct error *error)
{
    const struct program *q = p->train[p->ranks->ranks[rank].role];
    struct weights_place place = {q, p->ranks, rank, arena};
    memset(arena, 0x5a, arena_of(p, rank));
    const struct safetensors *states[NSTATES] = {[STATE_WEIGHT] = from};
    if (weights_init(&place, states, q->job.seed, error) != STATUS_OK)
        return NULL;
    *bytes = 0;
    for (uint32_t i = 0; i < q->nbuffers; i++)
        *bytes += persists(&q->buffers[i]) ? q->buffers[i].bytes : 0;
    uint8_t *image = malloc(*bytes + 1), *at = image;
    for (uint32_t i = 0; i < q->nbuffers; i++)
        if (persists(&q->buffers[i])) {
            memcpy(at, arena + q->buffers[i].offset, q->buffers[i].bytes);
            at += q->buffers[i].bytes;
        }
    return image;
}

/* small whole numbers, which bf16 holds, by tensor and place */
static float pattern(uint32_t tensor, uint64_t element)
{
    uint64_t h = (element + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)tensor * 0xd1342543de82ef95u;
    return (float)((int)(h >> 40 & 255) - 128);
}

static uint64_t elements_of(const struct weight_plan *t)
{
    return (t->ndim == 2 ? t->shape[0] : 1) * t->shape[1];
}

static bool write_source(struct fields_host *h, struct error *error)
{
    struct weight_files *f;
    char path[300];
    if (safetensors_create(h->folder, "source", h->catalog, h->n, (uint64_t)1 << 40, true, &f, error) != STATUS_OK)
        return false;
    for (uint32_t i = 0; i < h->n; i++)
        for (uint64_t e = 0; e < elements_of(&h->catalog[i]); e++) {
            float x = pattern(i, e);
            memcpy(safetensors_target(f, i) + e * sizeof x, &x, sizeof x);
        }
    snprintf(path, sizeof path, "%s/source.safetensors", h->folder);
    return safetensors_finish(f, true, error) == STATUS_OK && safetensors_open(path, &h->source, error) == STATUS_OK &&
           safetensors_create(h->folder, "saved", h->catalog, h->n, (uint64_t)1 << 40, true, &h->saved, error) ==
               STATUS_OK;
}

/* NULL, or what is not as it was in what was saved */
static const char *check_saved(struct arena *a, const struct fields_host *h)
{
    struct error error;
    struct weights_sink sink = {h->saved, h->catalog, h->n, h->covered};
    if (weights_complete(&sink, &error) != STATUS_OK)
        return arena_printf(a, "saving: %s", error.text);
    for (uint32_t i = 0; i < h->n; i++)
        for (uint64_t e = 0; e < elements_of(&h->catalog[i]); e++) {
            float x;
            memcpy(&x, safetensors_target(h->saved, i) + e * sizeof x, sizeof x);
            if (x != pattern(i, e))
                return arena_printf(a, "saving: element %llu of %s is another", (unsigned long long)e,
                                    h->catalog[i].name);
        }
    return NULL;
}

/* every rank filled in by rule and from the file, and saved */
static const char *check_weights(struct arena *a, const struct fields_host *h, const struct plan *p,
                                 struct image *keep)
{
    struct weights_sink sink = {h->saved, h->catalog, h->n, h->covered};
    const char *why = NULL;
    struct error error = {""};
    for (uint32_t i = 0; i < h->n; i++) {
        h->covered[i] = 0;
        memset(safetensors_target(h->saved, i), 0xff, elements_of(&h->catalog[i]) * sizeof(float));
    }
    for (uint32_t r = 0; r < p->ranks->nranks && !why; r++) {
        uint8_t *arena = malloc(arena_of(p, r));
        struct image x = {0};
        x.initial = fill(p, r, NULL, arena, &x.bytes, &error);
        x.loaded = fill(p, r, h->source, arena, &x.bytes, &error);
        if (!x.initial || !x.loaded)
            why = arena_printf(a, "rank %u: %s", r, error.text);
        else if (keep)
            keep[r] = x;
        else if (x.bytes != h->images[r].bytes || memcmp(x.initial, h->images[r].initial, x.bytes))
            why = arena_printf(a, "rank %u begins with other weights", r);
        else if (memcmp(x.loaded, h->images[r].loaded, x.bytes))
            why = arena_printf(a, "rank %u loads other weights", r);
        if (!why)
            weights_save(&(struct weights_place){p->train[p->ranks->ranks[r].role], p->ranks, r, arena},
                         &sink);
        free(arena);
        if (!keep || why) {
            free(x.initial);
            free(x.loaded);
        }
    }
    return why ? why : check_saved(a, h);
}

struct fields_host *fields_host_new(struct arena *a, const struct plan *p, const char *folder,
                                    const char **why)
{
    struct fields_host *h = ARENA_NEW(a, struct fields_host);
    struct error error = {""};
    h->plan = p;
    snprintf(h->folder, sizeof h->folder, "%s", folder);
    *why = NULL;
    if (weights_catalog((const struct program *const *)p->train, p->nroles, STATE_WEIGHT, false, &h->catalog, &h->n, &error) != STATUS_OK ||
        !write_source(h, &error)) {
        *why = arena_strdup(a, error.text);
        return NULL;
    }
    h->covered = calloc(h->n + 1u, sizeof *h->covered);
    h->images = ARENA_ARRAY(a, struct image, p->ranks->nranks);
    *why = check_weights(a, h, p, h->images);
    return *why ? NULL : h;
}

void fields_host_free(struct fields_host *h)
{
    char path[300];
    struct error error;
    for (uint32_t r = 0; r < h->plan->ranks->nranks; r++) {
        free(h->images[r].initial);
        free(h->images[r].loaded);
    }
    safetensors_close(h->source);
    safetensors_finish(h->saved, false, &error);
    free(h->catalog);
    free((void *)h->covered);
    snprintf(path, sizeof path, "%s/source.safetensors", h->folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/saved.safetensors.tmp", h->folder);
    unlink(path);
    rmdir(h->folder);
}

static const char *check_catalog(struct arena *a, const struct fields_host *h, const struct plan *p)
{
    struct weight_plan *list;
    uint32_t n;
    struct error error;
    const char *why = NULL;
    if (weights_catalog((const struct program *const *)p->train, p->nroles, STATE_WEIGHT, false, &list, &n, &error) != STATUS_OK)
        return arena_strdup(a, error.text);
    if (n != h->n)
        why = "there are more tensors, or fewer";
    for (uint32_t i = 0; i < n && !why; i++)
        if (strcmp(list[i].name, h->catalog[i].name) || list[i].ndim != h->catalog[i].ndim ||
            memcmp(list[i].shape, h->catalog[i].shape, sizeof list[i].shape))
            why = arena_printf(a, "tensor %s is another", list[i].name);
    free(list);
    return why;
}

static int64_t effective(const struct plan *p, uint32_t rank, const struct attr *x)
{
    return x->u.i + (x->slot == NONE
                         ? 0
                         : (int64_t)p->ranks->values[p->ranks->ranks[rank].slot + x->slot] * x->stride);
}

/* numbers that no value depends on where the model is executed: which routing is replayed, how products are
 * rounded */
static bool is_silent(enum op op, const char *name)
{
    return op == OP_ROUTE ? !strcmp(name, "layer") || !strcmp(name, "sample") || !strcmp(name, "start") ||
                                !strcmp(name, "first") || !strcmp(name, "shift")
                          : !strcmp(name, "fp8");
}

static const char *check_silent(struct arena *a, const struct plan *base, const struct plan *p, uint32_t rank,
                                int kind)
{
    uint32_t role = base->ranks->ranks[rank].role;
    const struct program *q = kind ? p->eval[role] : p->train[role],
                         *b = kind ? base->eval[role] : base->train[role];
    for (uint32_t i = 0; i < b->ninsns && i < q->ninsns; i++) {
        const struct isa_info *info = isa_info(b->insns[i].op);
        for (uint32_t k = 0; k < info->nattrs && q->insns[i].op == b->insns[i].op; k++)
            if (is_silent(b->insns[i].op, info->attr[k].name) &&
                effective(p, rank, &q->attrs[q->insns[i].attr + k]) !=
                    effective(base, rank, &b->attrs[b->insns[i].attr + k]))
                return arena_printf(a, "rank %u, %s %u: attribute %s is another", rank, info->name, i,
                                    info->attr[k].name);
        bool zeros = b->insns[i].op == OP_FILL &&
                     q->attrs[q->insns[i].attr + ATTR(FILL, value)].u.f == 0; /* of any format */
        for (uint32_t k = 0; k < info->noperands && q->insns[i].op == b->insns[i].op && !zeros; k++)
            if (b->operands[b->insns[i].operand + k].buffer != NONE &&
                q->operands[q->insns[i].operand + k].dtype != b->operands[b->insns[i].operand + k].dtype)
                return arena_printf(a, "rank %u, %s %u: operand %s has another format", rank, info->name, i,
                                    info->operand[k].name);
    }
    return NULL;
}

static bool same_job(const struct job_info *x, const struct job_info *y)
{
    const struct job_info *j[2] = {x, y};
    struct job_info whole[2];
    for (int i = 0; i < 2; i++) { /* -0 is 0 */
        whole[i] = *j[i];
        whole[i].lr += 0.0;
        whole[i].lr_min += 0.0;
        whole[i].beta1 += 0.0;
        whole[i].beta2 += 0.0;
        whole[i].tokens_per_step += 0.0;
    }
    return !memcmp(&whole[0], &whole[1], sizeof whole[0]);
}

const char *fields_host_harm(struct arena *a, const struct fields_host *h, const struct plan *p)
{
    const struct job_info *job = &h->plan->train[0]->job;
    for (uint32_t r = 0; r < p->nroles; r++)
        if (!same_job(&p->train[r]->job, job) || !same_job(&p->eval[r]->job, job))
            return "the job is another";
    const char *why = check_catalog(a, h, p);
    for (uint32_t r = 0; r < p->ranks->nranks && !why; r++)
        for (int kind = 0; kind < 2 && !why; kind++)
            why = check_silent(a, h->plan, p, r, kind);
    return why ? why : check_weights(a, h, p, NULL);
}
