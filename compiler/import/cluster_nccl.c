/* What an NCCL dump says of a node: its GPUs by PCI device, how NVLink joins them, its NICs and their network.
 *
 * The dump is read by the reader of cluster files' <topology> (topo_nccl.h); its warnings come when our own reader
 * looks at the finished file.  NVLinks count with their data-sheet's rate, as <scale-up> wants it, not with the lower
 * one that NCCL reckons with. */

#include "compiler/import/cluster_facts.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/topology/topo_nccl.h"
#include "compiler/topology/topo_rules.h"

#include <stdlib.h>
#include <string.h>

struct reading {
    struct cluster_facts *f;
    const struct cluster_file *file;
    struct nccl_dump dump;
    const struct xml_element *system;
    uint32_t ngpus, nnics; /* of each host */
};

static const char *attribute(const struct xml_element *e, const char *name)
{
    const struct xml_attr *v = e ? xml_attr(e, name) : NULL;
    return v ? v->value : "";
}

/* Numbers of the first host, which every other must share. */
static bool count_hosts(struct reading *r)
{
    uint32_t gpus[NCCL_DEVICES_MAX] = {0}, nics[NCCL_DEVICES_MAX] = {0};
    struct diag *d = r->f->diag;
    for (size_t i = 0; i < r->dump.gpus.n; i++)
        gpus[r->dump.gpus.at[i].host]++;
    for (size_t i = 0; i < r->dump.nics.n; i++)
        nics[r->dump.nics.at[i].host]++;
    for (uint32_t h = 1; h < r->dump.nhosts; h++)
        if (gpus[h] != gpus[0] || nics[h] != nics[0]) {
            diag_error(d, r->system->at, "bad-dump",
                       "the hosts in this dump differ: %u GPUs and %u NICs, then %u and %u", gpus[0], nics[0], gpus[h],
                       nics[h]);
            return false;
        }
    r->ngpus = gpus[0];
    r->nnics = nics[0];
    if (!r->ngpus && !r->nnics)
        diag_error(d, r->system->at, "bad-dump", "the dump lists neither GPUs nor NICs");
    else if (r->ngpus > TOPO_NODE_GPUS_MAX || r->nnics > 64)
        diag_error(d, r->system->at, "bad-dump", "%u GPUs and %u NICs: a node has at most 64 of each", r->ngpus,
                   r->nnics);
    else
        return true;
    return false;
}

static bool read_model(struct reading *r)
{
    struct cluster_facts *f = r->f;
    const struct nccl_gpu *first = &r->dump.gpus.at[0];
    for (size_t i = 1; i < r->dump.gpus.n; i++)
        if (r->dump.gpus.at[i].device != first->device) {
            diag_error(f->diag, r->dump.gpus.at[i].pci->at, "bad-dump",
                       "the GPUs in this dump differ: device 0x%lx, then 0x%lx", first->device,
                       r->dump.gpus.at[i].device);
            diag_note(f->diag, first->pci->at, "the first one");
            return false;
        }
    return cluster_say_device(f, first->device, first->pci->at);
}

/* the GPU of the first host whose PCI address this is, or UINT32_MAX */
static uint32_t gpu_at(const struct reading *r, const char *busid)
{
    uint32_t n = 0;
    for (size_t i = 0; i < r->dump.gpus.n; i++) {
        if (r->dump.gpus.at[i].host != 0)
            continue;
        if (*busid && !strcmp(attribute(r->dump.gpus.at[i].pci, "busid"), busid))
            return n;
        n++;
    }
    return UINT32_MAX;
}

/* Links between pairs of the first host's GPUs; true where there are any. */
static bool links_of_pairs(const struct reading *r, uint32_t *links)
{
    uint32_t n = 0;
    bool any = false;
    for (size_t i = 0; i < r->dump.gpus.n; i++) {
        const struct nccl_gpu *g = &r->dump.gpus.at[i];
        if (g->host != 0)
            continue;
        for (const struct xml_element *x = g->gpu ? g->gpu->child : NULL; x; x = x->next) {
            uint32_t to = strcmp(x->name, "nvlink") ? UINT32_MAX : gpu_at(r, attribute(x, "target"));
            uint64_t count = 0;
            struct units_error e;
            const char *text = attribute(x, "count");
            if (to == UINT32_MAX || to == n || !units_count(text, strlen(text), &count, &e) || count > 64)
                continue;
            links[n * r->ngpus + to] += (uint32_t)count;
            any = any || count;
        }
        n++;
    }
    return any;
}

/* GPUs without NVLink beside GPUs with it are broken, not a kind of machine. */
static bool read_links(struct reading *r)
{
    const struct nccl_gpu *first = &r->dump.gpus.at[0], *without = NULL;
    uint32_t least = UINT32_MAX, most = 0, links[TOPO_NODE_GPUS_MAX * TOPO_NODE_GPUS_MAX] = {0};
    bool switched = false;
    for (size_t i = 0; i < r->dump.gpus.n; i++) {
        const struct nccl_gpu *g = &r->dump.gpus.at[i];
        least = g->nvlinks < least ? g->nvlinks : least;
        most = g->nvlinks > most ? g->nvlinks : most;
        without = !without && !g->nvlinks ? g : without;
        switched = switched || g->nvswitch;
    }
    if (most && without) {
        diag_error(r->f->diag, without->pci->at, "nvlink-fault", "the GPU at %.32s lists no NVLink, but others do",
                   attribute(without->pci, "busid"));
        diag_help(r->f->diag, "take the dump on a healthy node");
        return false;
    }
    if (most && !switched && links_of_pairs(r, links))
        return cluster_say_links(r->f, r->ngpus, links, true, first->gpu->at);
    struct cluster_links all = {.by = most ? LINKS_SWITCH : LINKS_NONE,
                                .node_gpus = r->ngpus,
                                .domain = r->ngpus,
                                .sum = least,
                                .in_order = true,
                                .from = first->gpu->at};
    vec_push(r->f->arena, &r->f->links, all);
    return true;
}

static unsigned long hex(const struct xml_element *e, const char *name)
{
    return strtoul(attribute(e, name), NULL, 16);
}

static bool read_medium(struct reading *r, struct span from)
{
    const char *medium = NULL;
    for (size_t i = 0; i < r->dump.nics.n; i++) {
        const struct xml_element *pci = r->dump.nics.at[i].pci;
        const char *one = cluster_medium(hex(pci, "class") >> 8, hex(pci, "vendor"), hex(pci, "device"));
        if (medium && strcmp(medium, one) != 0)
            return true;
        medium = one;
    }
    return !medium || !*medium || cluster_say(r->f, KEY_MEDIUM, medium, from);
}

/* NICs of the first host by speed, in the order in which speeds are met. */
static bool read_nics(struct reading *r)
{
    struct cluster_facts *f = r->f;
    VEC(struct topo_nic) kinds = {0};
    struct span from = r->system->at;
    for (size_t i = 0; i < r->dump.nics.n; i++) {
        const struct nccl_nic *nic = &r->dump.nics.at[i];
        if (nic->host != 0)
            continue;
        from = !kinds.n && nic->pci ? nic->pci->at : from;
        size_t k = 0;
        while (k < kinds.n && kinds.at[k].bytes_s != nic->bytes_s)
            k++;
        if (k == kinds.n)
            vec_push(f->arena, &kinds, (struct topo_nic){.bytes_s = nic->bytes_s, .gdr = true});
        kinds.at[k].count++;
    }
    if (!cluster_say_count(f, KEY_NICS, r->nnics, from) || !read_medium(r, from))
        return false;
    struct strbuf b = {0};
    for (size_t k = 0; k < kinds.n; k++)
        if (kinds.n > 1)
            strbuf_printf(&b, "%s%u of %.10gGb/s", k ? ", " : "", kinds.at[k].count, kinds.at[k].bytes_s * 8 / 1e9);
        else if (kinds.at[k].bytes_s > 0)
            strbuf_printf(&b, "%.10gGb/s", kinds.at[k].bytes_s * 8 / 1e9);
    const char *speeds = b.length ? arena_strdup(f->arena, b.text) : NULL;
    strbuf_free(&b);
    if (kinds.n > 1 && f->facts[KEY_NIC].is != FACT_SET) {
        f->nics.at = kinds.at;
        f->nics.n = kinds.n;
    }
    return !speeds || cluster_say(f, KEY_NIC, speeds, from);
}

/* where the dump is of use beside the cluster file */
static void name_dump(struct reading *r)
{
    struct cluster_facts *f = r->f;
    if (!r->file->href)
        cluster_assume(f, "%s lies outside of this file's folder, so paths between GPUs and NICs are left out",
                       r->file->source->name);
    else if (!f->dump)
        f->dump = r->file;
}

bool cluster_read_nccl(struct cluster_facts *f, const struct cluster_file *file)
{
    struct reading r = {.f = f, .file = file, .system = xml_parse(f->arena, f->diag, file->source)};
    struct diag *quiet = diag_new(f->arena);
    if (!r.system)
        return false;
    if (strcmp(r.system->name, "system") != 0) {
        diag_error(f->diag, r.system->at, "bad-dump", "no NCCL dump: the root is <%.64s>, not <system>",
                   r.system->name);
        return false;
    }
    if (!nccl_read(f->arena, quiet, r.system, &r.dump)) {
        diag_append(f->diag, quiet);
        return false;
    }
    if (!count_hosts(&r))
        return false;
    if (r.ngpus) {
        if (!cluster_say_count(f, KEY_GPUS, r.ngpus, r.dump.gpus.at[0].pci->at) || !read_model(&r))
            return false;
        if (r.dump.has_gpu && r.ngpus * r.dump.nhosts > 1 && !read_links(&r))
            return false;
    }
    if (r.dump.nhosts > 1 && !cluster_say_count(f, KEY_SPAN, r.dump.nhosts, r.system->at))
        return false;
    if (r.nnics && !read_nics(&r))
        return false;
    name_dump(&r);
    return true;
}
