/* Node types: GPUs from file and catalogue, scale-up domains, NICs, and the dump that describes one node
 * exactly.
 *
 * A value in the file beats the catalogue.  What people most often get wrong gets a warning of its own: both
 * directions of NVLink added up, and sparse peaks. */

#include "compiler/topology/topo_walk.h"

#include "compiler/support/units.h"
#include "compiler/topology/topo_catalogue.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NODE_TYPES_MAX 256

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-3 * fabs(b);
}

/* ---- gpu ---- */

static void read_peaks(struct walk *w, const struct xml_element *e, struct topo_gpu *gpu)
{
    const struct topo_gpu catalogue = *gpu;
    const struct xml_element *first[NTOPO_DTYPES] = {0};
    for (const struct xml_element *p = topo_child(e, "peak", NULL); p; p = topo_child(e, "peak", p)) {
        uint32_t dtype;
        if (!topo_attr_count(p, "dtype", &dtype))
            continue;
        if (first[dtype]) {
            diag_error(w->diag, p->at, "repeated-element", "a second peak for %s", topo_dtype_words[dtype]);
            diag_note(w->diag, first[dtype]->at, "the first one");
            continue;
        }
        first[dtype] = p;
        topo_attr_real(p, "efficiency", &gpu->efficiency[dtype]);
        if (!topo_attr_real(p, "rate", &gpu->peak_flop_s[dtype]))
            continue;
        gpu->given |= (uint32_t)FACT_PEAK << dtype;
        double known = catalogue.peak_flop_s[dtype];
        if (known > 0 && fabs(gpu->peak_flop_s[dtype] / known - 2) < 0.01) {
            diag_warning(w->diag, xml_attr(p, "rate")->at, "sparse-peak",
                         "twice the dense peak of %s: is this the figure with sparsity?", gpu->model);
            diag_caret(w->diag, "the dense peak is %s", units_show_flop_s(known).s);
        }
    }
}

static bool has_peak(const struct topo_gpu *gpu)
{
    for (int i = 0; i < NTOPO_DTYPES; i++)
        if (gpu->peak_flop_s[i] > 0)
            return true;
    return false;
}

static void check_memory(struct walk *w, const struct xml_element *e, const struct topo_gpu *gpu, uint64_t known)
{
    const struct xml_attr *memory = xml_attr(e, "memory"), *reserve = xml_attr(e, "reserve");
    if (known && memory && memory->valid && (double)gpu->memory_bytes > 1.1 * (double)known) {
        diag_warning(w->diag, memory->at, "memory-above-catalogue", "%s has less memory than that", gpu->model);
        diag_caret(w->diag, "the driver reports %s", units_show_bytes(known).s);
    }
    if (gpu->memory_bytes && gpu->reserve_bytes >= gpu->memory_bytes)
        diag_error(w->diag, reserve ? reserve->at : e->at, "reserve", "the reserve of %s leaves nothing of %s",
                   units_show_bytes(gpu->reserve_bytes).s, units_show_bytes(gpu->memory_bytes).s);
}

static void check_unknown_model(struct walk *w, const struct xml_element *e, const struct topo_gpu *gpu)
{
    const char *near_name = topo_catalogue_nearest(gpu->model);
    bool memory = topo_attr_given(e, "memory"), peak = topo_child(e, "peak", NULL);
    const char *several = topo_catalogue_several(w->arena, gpu->model);
    if (memory && peak)
        return;
    if (several) {
        diag_error(w->diag, xml_attr(e, "model")->at, "which-gpu", "'%.64s' is the beginning of several GPUs' names",
                   gpu->model);
        diag_caret(w->diag, "which of %s?", several);
        return;
    }
    diag_error(w->diag, xml_attr(e, "model")->at, "unknown-gpu", "'%.64s' is not in the catalogue: it needs %s",
               gpu->model,
               memory ? "a <peak>"
               : peak ? "memory"
                      : "memory and a <peak>");
    if (near_name && !topo_is_cpu(gpu))
        diag_caret(w->diag, "did you mean '%s'?", near_name);
    diag_help(w->diag, "such as <gpu model=\"%.64s\" memory=\"80GiB\"><peak dtype=\"fp32\" rate=\"60TFLOP/s\"/></gpu>",
              gpu->model);
}

static void read_gpu(struct walk *w, const struct xml_element *e, struct topo_gpu *gpu)
{
    const char *model = topo_attr_text(e, "model");
    if (!model)
        return;
    const struct topo_catalogue_gpu *row = topo_catalogue_find(model);
    if (row)
        *gpu = row->gpu;
    else
        gpu->model = model;
    uint64_t known_bytes = gpu->memory_bytes;
    if (topo_attr_bytes(e, "memory", &gpu->memory_bytes))
        gpu->given |= FACT_MEMORY;
    if (topo_attr_bytes(e, "reserve", &gpu->reserve_bytes))
        gpu->given |= FACT_RESERVE;
    if (topo_attr_real(e, "memory-bandwidth", &gpu->memory_bytes_s))
        gpu->given |= FACT_MEMORY_RATE;
    read_peaks(w, e, gpu);
    if (!row)
        check_unknown_model(w, e, gpu);
    else if (!has_peak(gpu))
        diag_error(w->diag, e->at, "unknown-gpu", "%s has no peak rate", gpu->model);
    check_memory(w, e, gpu, known_bytes);
}

/* ---- scale-up ---- */

/* bandwidth or half of bidirectional; exactly one of them unless the kind is none */
static void read_scale_up_rate(struct walk *w, const struct xml_element *e, const struct topo_node_type *type,
                               struct topo_scale_up *s)
{
    const struct xml_attr *one_way = xml_attr(e, "bandwidth"), *both = xml_attr(e, "bidirectional");
    const struct topo_catalogue_gpu *row = type->gpu.model ? topo_catalogue_find(type->gpu.model) : NULL;
    double known = row ? row->bidirectional_bytes_s : 0;
    if (s->kind == SCALE_UP_NONE) {
        if (one_way || both)
            diag_error(w->diag, (one_way ? one_way : both)->name_at, "scale-up", "kind=\"none\" has no bandwidth");
        return;
    }
    if (one_way && both) {
        diag_error(w->diag, both->name_at, "scale-up", "give bandwidth or bidirectional, not both");
        diag_note(w->diag, one_way->name_at, "bandwidth is one direction, per GPU");
    } else if (!one_way && !both) {
        diag_error(w->diag, e->at, "scale-up", "<scale-up kind=\"%s\"> needs a bandwidth",
                   topo_scale_up_words[s->kind]);
        if (known > 0)
            diag_caret(w->diag, "add bandwidth=\"%s\"", units_show_bytes_s(known / 2).s);
        else
            diag_caret(w->diag, "one direction, per GPU");
    } else if (one_way) {
        topo_attr_real(e, "bandwidth", &s->bytes_s);
        if (known > 0 && near(s->bytes_s, known)) {
            diag_warning(w->diag, one_way->at, "both-directions",
                         "this is the figure for both directions of %s together", type->gpu.model);
            diag_caret(w->diag, "write bandwidth=\"%s\" or bidirectional=\"%s\"", units_show_bytes_s(known / 2).s,
                       units_show_bytes_s(known).s);
        }
    } else if (topo_attr_real(e, "bidirectional", &s->bytes_s)) {
        s->bytes_s /= 2;
    }
}

/* GPUs per domain: the node's times span, or fewer inside one node */
static void read_domain(struct walk *w, const struct xml_element *e, const struct topo_node_type *type,
                        struct topo_scale_up *s)
{
    const struct xml_attr *gpus = xml_attr(e, "gpus"), *span = xml_attr(e, "span");
    s->gpus = type->gpus * s->span;
    if (s->kind == SCALE_UP_NONE) {
        s->gpus = 1;
        if (gpus || span)
            diag_error(w->diag, (gpus ? gpus : span)->name_at, "scale-up", "kind=\"none\" has no domain");
        s->span = 1;
        return;
    }
    if (!gpus || !gpus->valid || !type->gpus)
        return;
    uint32_t n = (uint32_t)gpus->integer;
    if (s->span > 1 && n != s->gpus) {
        diag_error(w->diag, gpus->at, "scale-up", "a domain of %u nodes with %u GPUs each has %u GPUs, not %u", s->span,
                   type->gpus, s->gpus, n);
        diag_help(w->diag, "leave gpus out; it is for domains smaller than a node");
    } else if (n > type->gpus) {
        diag_error(w->diag, gpus->at, "scale-up", "a node has only %u GPUs", type->gpus);
        diag_help(w->diag, "for domains of several nodes write span=, in nodes");
    } else if (s->span == 1 && type->gpus % n) {
        diag_error(w->diag, gpus->at, "scale-up", "domains of %u do not divide a node's %u GPUs", n, type->gpus);
    } else {
        s->gpus = n;
    }
}

/* Without the element: as the catalogue knows the usual machine, if there is more than one GPU to join. */
static void assume_scale_up(const struct topo_node_type *type, struct topo_scale_up *s)
{
    const struct topo_catalogue_gpu *row = type->gpu.model ? topo_catalogue_find(type->gpu.model) : NULL;
    *s = (struct topo_scale_up){.kind = SCALE_UP_NONE, .span = 1, .gpus = 1};
    if (row && row->scale_up != SCALE_UP_NONE && type->gpus > 1) {
        s->kind = row->scale_up;
        s->bytes_s = row->bidirectional_bytes_s / 2;
        s->gpus = type->gpus;
        s->multicast = s->kind == SCALE_UP_NVSWITCH && type->gpu.sm >= 90;
    }
}

static void read_scale_up(struct walk *w, const struct xml_element *e, struct topo_node_type *type)
{
    struct topo_scale_up *s = &type->scale_up;
    uint32_t kind;
    if (!e) {
        assume_scale_up(type, s);
        return;
    }
    s->span = 1;
    topo_attr_count(e, "span", &s->span);
    topo_attr_real(e, "latency", &s->latency_s);
    if (!topo_attr_count(e, "kind", &kind))
        return;
    s->kind = (enum scale_up_kind)kind;
    type->gpu.given |= FACT_SCALE_UP;
    /* switches of Hopper's generation and later add and multicast (NVLink SHARP) */
    s->multicast = topo_attr_yes(e, "multicast", s->kind == SCALE_UP_NVSWITCH && type->gpu.sm >= 90);
    if (s->multicast && s->kind != SCALE_UP_NVSWITCH)
        diag_error(w->diag, xml_attr(e, "multicast")->at, "scale-up", "only kind=\"nvswitch\" can multicast");
    read_scale_up_rate(w, e, type, s);
    read_domain(w, e, type, s);
}

/* ---- nic ---- */

static void read_nics(struct walk *w, const struct xml_element *e, struct topo_node_type *type)
{
    VEC(struct topo_nic) nics = {0};
    double sum = 0;
    for (const struct xml_element *n = topo_child(e, "nic", NULL); n; n = topo_child(e, "nic", n)) {
        struct topo_nic nic = {.gdr = topo_attr_yes(n, "gdr", true)};
        topo_attr_real(n, "latency", &nic.latency_s);
        if (!topo_attr_count(n, "count", &nic.count) || !topo_attr_real(n, "bandwidth", &nic.bytes_s))
            continue;
        if (nic.count > 64)
            diag_error(w->diag, xml_attr(n, "count")->at, "bad-value", "a node has at most 64 NICs of a kind");
        sum += nic.count * nic.bytes_s;
        vec_push(w->arena, &nics, nic);
    }
    type->nnics = (uint32_t)nics.n;
    type->nics = nics.at;
    type->nic_bytes_s_per_gpu = type->gpus ? sum / type->gpus : 0;
}

/* ---- dumps ---- */

static void read_dump_file(struct walk *w, const struct xml_element *e, const struct xml_element *node_type,
                           struct topo_node_type *type)
{
    uint32_t format;
    const struct xml_attr *href = xml_attr(e, "href");
    if (!topo_attr_count(e, "format", &format) || !href || !href->valid)
        return;
    if (format != 0) {
        diag_error(w->diag, xml_attr(e, "format")->at, "unsupported", "hwloc files are not read yet");
        diag_help(w->diag, "let NCCL write its own view with NCCL_TOPO_DUMP_FILE and use format=\"nccl\"");
        return;
    }
    const struct source *source = walk_import(w, href);
    struct xml_element *system = source ? xml_parse(w->arena, w->diag, source) : NULL;
    if (!system)
        return;
    if (strcmp(system->name, "system") != 0) {
        diag_error(w->diag, href->at, "bad-dump", "%s is no NCCL dump: its root is <%.64s>, not <system>", source->name,
                   system->name);
        return;
    }
    walk_nccl(w, system, href->at, node_type, type);
    walk_replace(w, e, source->text + system->at.start - 1, system->end - (system->at.start - 1));
}

static void read_dump(struct walk *w, const struct xml_element *e, struct topo_node_type *type)
{
    const struct xml_element *file = topo_child(e, "topology", NULL), *pasted = topo_child(e, "system", NULL);
    if (file && pasted) {
        diag_error(w->diag, pasted->at, "repeated-element", "<node-type> has both <topology> and <system>");
        diag_note(w->diag, file->at, "either is enough");
    } else if (file) {
        read_dump_file(w, file, e, type);
    } else if (pasted) {
        walk_nccl(w, pasted, pasted->at, e, type);
    }
}

/* ---- node-type ---- */

/* How often a node interrupts a run, where the file does not say it: as in 54 days of Llama 3 405B's training on 2,048
 * nodes of eight H100, with 419 unplanned interruptions of all causes (arXiv 2407.21783, section 3.3.4).  Ten minutes
 * until it goes on are our assumption. */
static const double default_mtbf_s = 264 * 86400.0, default_restart_s = 600;

static void read_interruptions(const struct xml_element *e, struct topo_node_type *type)
{
    type->mtbf_assumed = type->gpu.model && !topo_is_cpu(&type->gpu);
    type->mtbf_s = type->mtbf_assumed ? default_mtbf_s : 0;
    if (topo_attr_real(e, "mtbf", &type->mtbf_s))
        type->mtbf_assumed = false;
    type->restart_s = default_restart_s;
    topo_attr_real(e, "restart", &type->restart_s);
}

static void read_node_type(struct walk *w, const struct xml_element *e, struct topo_node_type *type)
{
    const struct xml_element *gpu = topo_child(e, "gpu", NULL);
    const char *id = topo_attr_text(e, "id");
    type->id = id ? id : "";
    type->span = e->at;
    topo_attr_count(e, "gpus", &type->gpus);
    topo_attr_count(e, "cores", &type->cores);
    topo_attr_bytes(e, "host-memory", &type->host_memory_bytes);
    topo_attr_real(e, "host-bandwidth", &type->host_bytes_s);
    if (gpu)
        read_gpu(w, gpu, &type->gpu);
    read_interruptions(e, type);
    read_scale_up(w, topo_child(e, "scale-up", NULL), type);
    read_nics(w, e, type);
    read_dump(w, e, type);
}

void walk_node_types(struct walk *w)
{
    struct topo *t = w->topo;
    for (const struct xml_element *e = topo_child(w->root, "node-type", NULL); e;
         e = topo_child(w->root, "node-type", e))
        t->ntypes++;
    if (t->ntypes > NODE_TYPES_MAX) {
        diag_error(w->diag, w->root->at, "too-many", "more than %d node types", NODE_TYPES_MAX);
        t->ntypes = 0;
        return;
    }
    t->types = ARENA_ARRAY(w->arena, struct topo_node_type, t->ntypes);
    uint32_t i = 0;
    for (const struct xml_element *e = topo_child(w->root, "node-type", NULL); e;
         e = topo_child(w->root, "node-type", e), i++) {
        read_node_type(w, e, &t->types[i]);
        for (uint32_t k = 0; k < i; k++)
            if (*t->types[i].id && !strcmp(t->types[i].id, t->types[k].id)) {
                diag_error(w->diag, xml_attr(e, "id")->at, "repeated-name", "a second node type '%s'", t->types[i].id);
                diag_note(w->diag, t->types[k].span, "the first one");
                break;
            }
    }
}

bool walk_type(struct walk *w, const struct xml_element *e, const char *attribute, uint32_t *type)
{
    const struct topo *t = w->topo;
    const char *id = topo_attr_text(e, attribute);
    if (!id)
        return false;
    const char *names[NODE_TYPES_MAX];
    for (uint32_t i = 0; i < t->ntypes; i++) {
        if (!strcmp(t->types[i].id, id)) {
            *type = i;
            return true;
        }
        names[i] = t->types[i].id;
    }
    for (uint32_t i = 0; i < t->ntypes; i++)
        if (!*t->types[i].id) /* a type whose id was refused: perhaps that one */
            return false;
    const char *near_name = diag_nearest(id, names, t->ntypes);
    diag_error(w->diag, xml_attr(e, attribute)->at, "unknown-type", "there is no node type '%s'", id);
    if (near_name)
        diag_caret(w->diag, "did you mean '%s'?", near_name);
    return false;
}
