/* What a file of hwloc (lstopo --of xml) says of a node: GPUs and NICs among its PCI devices.
 *
 * Such a file begins with a DOCTYPE that names hwloc's own DTD.  That very line is blanked before the file is parsed,
 * any other DOCTYPE stays and is refused as everywhere.  Of the tree only <object type="PCIDev"> counts: pci_type is
 * "0302 [10de:2330] [10de:16c1] a1", class, vendor, device.  Not read: distances by NVLink, speeds of PCIe. */

#include "compiler/import/cluster_facts.h"

#include "compiler/topology/topo_rules.h"
#include "compiler/topology/topo_xml.h"

#include <stdio.h>

#define NICS_MAX 64u

struct reading {
    struct cluster_facts *f;
    const struct xml_element *first_gpu, *first_nic;
    uint32_t ngpus, nnics;
    unsigned device; /* of the GPUs */
    const char *cards[NICS_MAX], *medium;
    bool mixed; /* NICs of several networks */
};

/* the file without hwloc's own DOCTYPE */
static const struct source *without_doctype(struct cluster_facts *f, const struct source *s)
{
    static const char *const lines[] = {"<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">",
                                        "<!DOCTYPE topology SYSTEM \"hwloc.dtd\">"};
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        size_t n = strlen(lines[i]), head = s->size < 4096 ? s->size : 4096;
        const char *at = memmem(s->text, head, lines[i], n);
        if (!at)
            continue;
        char *text = arena_strndup(f->arena, s->text, s->size);
        memset(text + (at - s->text), ' ', n);
        struct source *copy = ARENA_NEW(f->arena, struct source);
        *copy = *s;
        copy->text = text;
        return copy;
    }
    return s;
}

static const char *attribute(const struct xml_element *e, const char *name)
{
    const struct xml_attr *v = xml_attr(e, name);
    return v ? v->value : "";
}

static bool add_gpu(struct reading *r, const struct xml_element *e, unsigned device)
{
    if (r->ngpus && device != r->device) {
        diag_error(r->f->diag, e->at, "bad-dump", "the GPUs in this file differ: device 0x%x, then 0x%x", r->device,
                   device);
        diag_note(r->f->diag, r->first_gpu->at, "the first one");
        return false;
    }
    if (r->ngpus == TOPO_NODE_GPUS_MAX) {
        diag_error(r->f->diag, e->at, "too-many", "a node has at most %u GPUs", TOPO_NODE_GPUS_MAX);
        return false;
    }
    r->device = device;
    r->first_gpu = r->ngpus++ ? r->first_gpu : e;
    return true;
}

/* A card that speaks verbs (an OSDev of type 3, OpenFabrics); its functions are one. */
static bool add_nic(struct reading *r, const struct xml_element *e, unsigned class, unsigned vendor, unsigned device)
{
    const struct xml_element *verbs = e->child;
    while (verbs && strcmp(attribute(verbs, "osdev_type"), "3") != 0)
        verbs = verbs->next;
    const char *busid = attribute(e, "pci_busid"), *card = arena_strndup(r->f->arena, busid, strcspn(busid, "."));
    for (uint32_t i = 0; i < r->nnics; i++)
        if (!strcmp(r->cards[i], card))
            return true;
    if (!verbs)
        return true;
    if (r->nnics == NICS_MAX) {
        diag_error(r->f->diag, e->at, "too-many", "a node has at most %u NICs", NICS_MAX);
        return false;
    }
    const char *medium = cluster_medium(class, vendor, device);
    r->mixed = r->mixed || (r->nnics && strcmp(medium, r->medium) != 0);
    r->medium = medium;
    r->first_nic = r->nnics ? r->first_nic : e;
    r->cards[r->nnics++] = card;
    return true;
}

/* Depth is bounded by the XML reader. */
static bool read_below(struct reading *r, const struct xml_element *e)
{
    for (const struct xml_element *x = e->child; x; x = x->next) {
        unsigned class, vendor, device;
        bool pci = !strcmp(attribute(x, "type"), "PCIDev") &&
                   sscanf(attribute(x, "pci_type"), "%4x [%4x:%4x]", &class, &vendor, &device) == 3;
        if (pci && class >> 8 == 0x03 && vendor == 0x10de && !add_gpu(r, x, device))
            return false;
        if (pci && class >> 8 == 0x02 && !add_nic(r, x, class, vendor, device))
            return false;
        if (!read_below(r, x))
            return false;
    }
    return true;
}

bool cluster_read_hwloc(struct cluster_facts *f, const struct cluster_file *file)
{
    struct reading r = {.f = f};
    const struct xml_element *root = xml_parse(f->arena, f->diag, without_doctype(f, file->source));
    if (!root)
        return false;
    if (strcmp(root->name, "topology") != 0) {
        diag_error(f->diag, root->at, "bad-dump", "no file of hwloc: the root is <%.64s>, not <topology>", root->name);
        return false;
    }
    if (!read_below(&r, root))
        return false;
    if (!r.ngpus) {
        diag_error(f->diag, root->at, "bad-dump", "the file lists no GPU of NVIDIA among its PCI devices");
        diag_help(f->diag, "lstopo leaves I/O devices out with --no-io; take the file without that");
        return false;
    }
    struct span at = {file->source, r.first_gpu->at.start, r.first_gpu->at.length};
    if (!cluster_say_count(f, KEY_GPUS, r.ngpus, at) || !cluster_say_device(f, r.device, at))
        return false;
    if (r.nnics) {
        struct span nic = {file->source, r.first_nic->at.start, r.first_nic->at.length};
        cluster_guess(f, KEY_NICS, arena_printf(f->arena, "%u", r.nnics), nic);
        if (!r.mixed && *r.medium)
            cluster_guess(f, KEY_MEDIUM, r.medium, nic);
    }
    return true;
}
