/* What an NCCL dump adds to a node type, and where the two contradict each other.
 *
 * The dump is exact about one node, the cluster file is what the user means: numbers of GPUs and NICs must
 * agree, or one of the two describes another machine.  Speeds of NICs are taken from the dump, with a warning
 * when they differ. Of a dump with several hosts (one NVLink domain) every host must look like this type; the
 * first gives the detail. */

#include "compiler/topology/topo_nccl.h"
#include "compiler/topology/topo_walk.h"

#include "compiler/support/units.h"
#include "compiler/topology/topo_catalogue.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct compare {
    struct walk *w;
    struct nccl_dump dump;
    struct span dump_at;                 /* where the cluster file brings the dump in */
    const struct xml_element *node_type; /* the element */
    struct topo_node_type *type;
    uint32_t ngpus, nnics; /* of the first host */
};

static const char *busid(const struct xml_element *pci)
{
    const struct xml_attr *v = pci ? xml_attr(pci, "busid") : NULL;
    return v ? v->value : "?";
}

/* Numbers of the first host; every other host must have the same. */
static bool count_hosts(struct compare *c)
{
    struct nccl_dump *dump = &c->dump;
    uint32_t *gpus = ARENA_ARRAY(c->w->arena, uint32_t, dump->nhosts),
             *nics = ARENA_ARRAY(c->w->arena, uint32_t, dump->nhosts);
    for (size_t i = 0; i < dump->gpus.n; i++)
        gpus[dump->gpus.at[i].host]++;
    for (size_t i = 0; i < dump->nics.n; i++)
        nics[dump->nics.at[i].host]++;
    c->ngpus = gpus[0];
    c->nnics = nics[0];
    for (uint32_t h = 1; h < dump->nhosts; h++)
        if (gpus[h] != c->ngpus || nics[h] != c->nnics) {
            diag_error(c->w->diag, c->dump_at, "bad-dump",
                       "the hosts in this dump differ: %u GPUs and %u NICs, then %u and %u", c->ngpus, c->nnics,
                       gpus[h], nics[h]);
            return false;
        }
    if (dump->nhosts > 1 && c->type->scale_up.span < dump->nhosts) {
        diag_error(c->w->diag, c->dump_at, "bad-dump", "the dump shows an NVLink domain of %u hosts, but span is %u",
                   dump->nhosts, c->type->scale_up.span);
        return false;
    }
    return true;
}

static bool compare_counts(struct compare *c)
{
    struct topo_node_type *type = c->type;
    const struct xml_attr *gpus = xml_attr(c->node_type, "gpus");
    const struct xml_element *nic = topo_child(c->node_type, "nic", NULL);
    uint32_t nics = 0;
    bool agree = true;
    for (uint32_t i = 0; i < type->nnics; i++)
        nics += type->nics[i].count;
    if (c->ngpus && gpus && gpus->valid && c->ngpus != type->gpus) {
        diag_error(c->w->diag, c->dump_at, "dump-mismatch", "the dump has %u GPU%s, but the node type has %u", c->ngpus,
                   c->ngpus > 1 ? "s" : "", type->gpus);
        diag_note(c->w->diag, gpus->at, "gpus");
        agree = false;
    }
    if (c->nnics && nic && nics && c->nnics != nics) {
        diag_error(c->w->diag, c->dump_at, "dump-mismatch", "the dump has %u NIC%s, but the node type has %u", c->nnics,
                   c->nnics > 1 ? "s" : "", nics);
        diag_note(c->w->diag, nic->at, "<nic>");
        agree = false;
    }
    return agree;
}

/* ---- gpus ---- */

static void compare_model(struct compare *c)
{
    const struct topo_gpu *gpu = &c->type->gpu;
    const struct nccl_gpu *seen = &c->dump.gpus.at[0];
    const char *model = topo_catalogue_device(seen->device);
    const struct topo_catalogue_gpu *row = model ? topo_catalogue_find(model) : NULL;
    if (row && gpu->model && gpu->known) {
        double memory = (double)gpu->memory_bytes / (double)row->gpu.memory_bytes;
        bool alike = !strncmp(model, gpu->model, strlen(model)) || !strncmp(model, gpu->model, strlen(gpu->model));
        if (!alike || memory > 1.25 || memory < 0.75) {
            diag_warning(c->w->diag, c->dump_at, "dump-mismatch",
                         "the GPUs in the dump are %s (device 0x%lx), not %s of %s", model, seen->device, gpu->model,
                         units_show_bytes(gpu->memory_bytes).s);
            return;
        }
    }
    if (seen->sm && gpu->sm && seen->sm != gpu->sm)
        diag_warning(c->w->diag, c->dump_at, "dump-mismatch", "the GPUs in the dump have sm %u, but %s has %u",
                     seen->sm, gpu->model, gpu->sm);
}

/* GPUs without NVLink beside GPUs with it are broken, not a kind of machine. */
static bool compare_links(struct compare *c, uint32_t *links)
{
    const struct nccl_gpu *without = NULL;
    uint32_t least = UINT32_MAX;
    bool ranked = false;
    *links = 0;
    for (size_t i = 0; i < c->dump.gpus.n; i++) {
        const struct nccl_gpu *g = &c->dump.gpus.at[i];
        *links = g->nvlinks > *links ? g->nvlinks : *links;
        least = g->nvlinks < least ? g->nvlinks : least;
        without = !without && !g->nvlinks ? g : without;
        ranked = ranked || (g->gpu && xml_attr(g->gpu, "rank"));
    }
    if (*links && without) {
        diag_error(c->w->diag, without->pci->at, "nvlink-fault", "the GPU at %.32s lists no NVLink, but others do",
                   busid(without->pci));
        diag_help(c->w->diag, "take the dump on a healthy node, and exclude that GPU with <exclude gpus=...>");
        return false;
    }
    if (*links != least)
        diag_warning(c->w->diag, c->dump_at, "nvlink-fault", "the GPUs in the dump have %u to %u NVLinks", least,
                     *links);
    for (size_t i = 0; i < c->dump.gpus.n && ranked; i++)
        if (c->dump.gpus.at[i].gpu && !xml_attr(c->dump.gpus.at[i].gpu, "rank")) {
            diag_warning(c->w->diag, c->dump.gpus.at[i].gpu->at, "no-rank", "NCCL ignores a <gpu> without rank");
            break;
        }
    return true;
}

static void compare_nvlink(struct compare *c, uint32_t links, struct topo_detail *detail)
{
    struct topo_scale_up *s = &c->type->scale_up;
    const struct nccl_gpu *first = &c->dump.gpus.at[0];
    uint32_t sm = first->sm ? first->sm : c->type->gpu.sm;
    detail->nvlink_bytes_s = links * nccl_nvlink_bytes_s(sm);
    if (!links)
        return;
    if (s->kind == SCALE_UP_NONE && !(c->type->gpu.given & FACT_SCALE_UP)) {
        *s = (struct topo_scale_up){.kind = first->nvswitch ? SCALE_UP_NVSWITCH : SCALE_UP_MESH,
                                    .bytes_s = detail->nvlink_bytes_s,
                                    .span = c->dump.nhosts,
                                    .gpus = c->type->gpus * c->dump.nhosts};
        return;
    }
    /* data-sheet figures are 1.2 to 1.25 times NCCL's effective ones */
    double ratio = s->bytes_s / detail->nvlink_bytes_s;
    if (s->bytes_s > 0 && (ratio > 1.6 || ratio < 0.7)) {
        diag_warning(c->w->diag, c->dump_at, "dump-mismatch",
                     "%u NVLinks per GPU give about %s, but <scale-up> says %s", links,
                     units_show_bytes_s(detail->nvlink_bytes_s).s, units_show_bytes_s(s->bytes_s).s);
        diag_caret(c->w->diag, "one direction, per GPU");
    } else if (s->kind == SCALE_UP_NONE || s->kind == SCALE_UP_PCIE) {
        diag_warning(c->w->diag, c->dump_at, "dump-mismatch", "the dump lists NVLink, but <scale-up> has kind=\"%s\"",
                     topo_scale_up_words[s->kind]);
    }
}

/* ---- nics ---- */

/* With speeds in the dump: the node type's NICs get them. */
static void take_nic_speeds(struct compare *c)
{
    struct topo_node_type *type = c->type;
    double dump_sum = 0, file_sum = 0;
    for (size_t i = 0; i < c->dump.nics.n; i++)
        dump_sum += c->dump.nics.at[i].host == 0 ? c->dump.nics.at[i].bytes_s : 0;
    for (uint32_t i = 0; i < type->nnics; i++)
        file_sum += type->nics[i].count * type->nics[i].bytes_s;
    if (dump_sum <= 0 || !type->gpus)
        return;
    struct topo_nic *nics = ARENA_ARRAY(c->w->arena, struct topo_nic, type->nnics ? type->nnics : 1);
    for (uint32_t i = 0; i < type->nnics; i++) {
        nics[i] = type->nics[i];
        nics[i].bytes_s *= dump_sum / file_sum;
    }
    if (!type->nnics) {
        nics[0] = (struct topo_nic){.count = c->nnics, .bytes_s = dump_sum / c->nnics, .gdr = true};
        type->nnics = 1;
    } else if (fabs(dump_sum / file_sum - 1) > 0.01) {
        diag_warning(c->w->diag, c->dump_at, "dump-overrides",
                     "the NICs in the dump give %s in all, not %s: the dump's are used", units_show_bytes_s(dump_sum).s,
                     units_show_bytes_s(file_sum).s);
    }
    type->nics = nics;
    type->nic_bytes_s_per_gpu = dump_sum / type->gpus;
}

/* ---- detail ---- */

static int by_dev(const void *a, const void *b)
{
    const struct nccl_gpu *const *p = a, *const *q = b;
    if ((*p)->dev != (*q)->dev)
        return (*p)->dev < (*q)->dev ? -1 : 1;
    return *p < *q ? -1 : *p > *q; /* document order: they are in one array */
}

/* GPUs of the first host in the order of their NVML numbers, where those are given. */
static const struct nccl_gpu **ordered_gpus(struct compare *c)
{
    const struct nccl_gpu **order = ARENA_ARRAY(c->w->arena, const struct nccl_gpu *, c->ngpus);
    size_t n = 0;
    for (size_t i = 0; i < c->dump.gpus.n; i++)
        if (c->dump.gpus.at[i].host == 0)
            order[n++] = &c->dump.gpus.at[i];
    if (n)
        qsort(order, n, sizeof *order, by_dev);
    return order;
}

static void fill_paths(struct compare *c, struct topo_detail *detail)
{
    const struct nccl_gpu **gpus = ordered_gpus(c);
    double *paths = ARENA_ARRAY(c->w->arena, double, (size_t)c->ngpus * c->nnics);
    for (uint32_t g = 0; g < c->ngpus; g++) {
        uint32_t n = 0;
        for (size_t i = 0; i < c->dump.nics.n; i++)
            if (c->dump.nics.at[i].host == 0)
                paths[g * c->nnics + n++] = nccl_path_bytes_s(gpus[g]->pci, c->dump.nics.at[i].pci);
    }
    detail->gpu_nic_bytes_s = paths;
}

void walk_nccl(struct walk *w, const struct xml_element *system, struct span dump_at,
               const struct xml_element *node_type, struct topo_node_type *type)
{
    struct compare c = {.w = w, .dump_at = dump_at, .node_type = node_type, .type = type};
    uint32_t links = 0;
    if (!nccl_read(w->arena, w->diag, system, &c.dump) || !count_hosts(&c) || !compare_counts(&c))
        return;
    struct topo_detail *detail = ARENA_NEW(w->arena, struct topo_detail);
    *detail = (struct topo_detail){.ngpus = c.ngpus, .nnics = c.nnics, .nnuma = c.dump.nnuma};
    if (!c.ngpus && !c.nnics) {
        diag_warning(w->diag, dump_at, "bad-dump", "the dump lists neither GPUs nor NICs");
        return;
    }
    if (c.ngpus) {
        compare_model(&c);
        if (!compare_links(&c, &links))
            return;
        compare_nvlink(&c, links, detail);
    }
    if (c.nnics)
        take_nic_speeds(&c);
    fill_paths(&c, detail);
    type->detail = detail;
}
