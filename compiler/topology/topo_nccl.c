/* Reading NCCL topology dumps.
 *
 * Vocabulary, classes, speeds and defaults follow NCCL 2.30 (src/graph/xml.cc, topo.cc, topo.h), which parses
 * these files by itself and silently ignores what it does not know.  We warn about that instead, because many
 * of the files that people pass on were written by hand.  Speeds of switch ports above the lowest common
 * switch are never used: firmware often reports an idle state there (5 GT/s above 32 GT/s devices), and
 * believing it makes paths many times too slow. Not read: CPU affinity, C2C links, rail and plane numbers. */

#include "compiler/topology/topo_nccl.h"

#include "compiler/support/units.h"

#include <stdlib.h>
#include <string.h>

/* ---- vocabulary ---- */

static const struct nccl_rule {
    const char *name, *parents[2];
    const char *attrs[16];
} rules[] = {
    {"system", {""}, {"version", "name"}},
    {"cpu", {"system"}, {"numaid", "affinity", "arch", "vendor", "familyid", "modelid", "host_hash"}},
    {"pci",
     {"cpu", "pci"},
     {"busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"}},
    {"pcilink", {"pci"}, {"target"}},
    {"gpu", {"pci"}, {"dev", "sm", "rank", "gdr", "mlopart"}},
    {"nvlink", {"gpu"}, {"target", "count", "tclass"}},
    {"c2c", {"gpu"}, {"bw", "count"}},
    {"nic", {"pci", "cpu"}, {0}},
    {"net",
     {"nic"},
     {"name", "dev", "speed", "port", "latency", "guid", "maxconn", "gdr", "coll", "net", "gin", "rma", "rail",
      "plane"}},
};

struct reader {
    struct arena *arena;
    struct diag *diag;
    struct nccl_dump *dump;
    uint32_t host; /* of the <cpu> being read */
    VEC(const char *) hosts;
    VEC(const struct xml_element *) ports; /* <net> rows counted so far */
    /* oddities that come in dozens are reported once, at the first */
    const struct xml_element *first_idle, *first_spelling;
    uint32_t nidle, nspelling;
};

static const struct nccl_rule *find_rule(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (!strcmp(rules[i].name, name))
            return &rules[i];
    return NULL;
}

static bool belongs(const struct nccl_rule *rule, const char *parent)
{
    return !strcmp(rule->parents[0], parent) || (rule->parents[1] && !strcmp(rule->parents[1], parent));
}

static void check_attributes(struct reader *r, const struct xml_element *e, const struct nccl_rule *rule)
{
    size_t n = 0;
    while (n < ARRAY_LEN(rule->attrs) && rule->attrs[n])
        n++;
    for (uint32_t i = 0; i < e->nattrs; i++) {
        bool known = !strcmp(e->attrs[i].name, "keep");
        for (size_t k = 0; k < n; k++)
            known = known || !strcmp(e->attrs[i].name, rule->attrs[k]);
        if (known)
            continue;
        const char *near = diag_nearest(e->attrs[i].name, rule->attrs, n);
        diag_warning(r->diag, e->attrs[i].name_at, "unknown-attribute", "NCCL ignores the attribute '%.64s' of <%s>",
                     e->attrs[i].name, e->name);
        if (near)
            diag_caret(r->diag, "did you mean '%s'?", near);
    }
}

/* Is this element one that NCCL would read here? */
static bool check_element(struct reader *r, const struct xml_element *e)
{
    const struct nccl_rule *rule = find_rule(e->name);
    if (rule && belongs(rule, e->parent->name)) {
        check_attributes(r, e, rule);
        return true;
    }
    const char *names[ARRAY_LEN(rules)], *near;
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (belongs(&rules[i], e->parent->name))
            names[n++] = rules[i].name;
    near = rule ? NULL : diag_nearest(e->name, names, n);
    diag_warning(r->diag, e->at, "unknown-element", "NCCL ignores <%.64s> in <%s>", e->name, e->parent->name);
    if (near)
        diag_caret(r->diag, "did you mean '%s'?", near);
    else if (rule && rule->parents[1])
        diag_caret(r->diag, "it belongs in <%s> or <%s>", rule->parents[0], rule->parents[1]);
    else if (rule && *rule->parents[0])
        diag_caret(r->diag, "it belongs in <%s>", rule->parents[0]);
    return false;
}

/* ---- values ---- */

static const char *text(const struct xml_element *e, const char *name)
{
    const struct xml_attr *v = e ? xml_attr(e, name) : NULL;
    return v ? v->value : "";
}

/* a whole number below 2^31, or `otherwise` */
static int64_t whole(const struct xml_element *e, const char *name, int64_t otherwise)
{
    uint64_t value;
    struct units_error error;
    const struct xml_attr *v = xml_attr(e, name);
    return v && units_count(v->value, v->length, &value, &error) && value < INT32_MAX ? (int64_t)value : otherwise;
}

static bool starts(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

/* PCIe generations: GT/s per lane as files spell it, and usable 100 Mb/s per lane */
static const struct generation {
    const char *gt;
    unsigned lane;
} generations[] = {{"2.5", 15}, {"5", 30}, {"8", 60}, {"16", 120}, {"32", 240}, {"64", 480}};

#define LANE_DEFAULT 60u /* NCCL's, where the speed is unknown: generation 3 */

/* What NCCL makes of a link_speed: it compares prefixes with two lists of spellings and takes anything else
 * for gen 3. */
static unsigned lane_of_nccl(const char *speed)
{
    static const char *const spellings[][2] = {{"2.5 GT/s", "2.5 GT/s PCIe"}, {"5 GT/s", "5.0 GT/s PCIe"},
                                               {"8 GT/s", "8.0 GT/s PCIe"},   {"16 GT/s", "16.0 GT/s PCIe"},
                                               {"32 GT/s", "32.0 GT/s PCIe"}, {"64 GT/s", "64.0 GT/s PCIe"}};
    for (size_t i = 0; i < ARRAY_LEN(spellings); i++)
        if (starts(speed, spellings[i][0]) || starts(speed, spellings[i][1]))
            return generations[i].lane;
    return LANE_DEFAULT;
}

/* 100 Mb/s per lane by the number alone, however it is spelt; 0 = not stated or no known generation */
static unsigned lane_of(const char *speed)
{
    size_t n = strspn(speed, "0123456789.");
    while (n > 2 && speed[n - 1] == '0' && speed[n - 2] == '.')
        n -= 2;
    for (size_t i = 0; i < ARRAY_LEN(generations); i++)
        if (n == strlen(generations[i].gt) && !memcmp(speed, generations[i].gt, n))
            return generations[i].lane;
    return 0;
}

/* the port between a device and what it is plugged into */
static double port_bytes_s(const struct xml_element *pci)
{
    unsigned lane = lane_of(text(pci, "link_speed"));
    int64_t width = whole(pci, "link_width", 0);
    return (double)(width >= 1 && width <= 64 ? width : 16) * (lane ? lane : LANE_DEFAULT) * 1e9 / 80;
}

double nccl_path_bytes_s(const struct xml_element *pci_a, const struct xml_element *pci_b)
{
    double least = 0;
    for (const struct xml_element *x = pci_a; x && !strcmp(x->name, "pci"); x = x->parent) {
        double below = least;
        for (const struct xml_element *y = pci_b; y && !strcmp(y->name, "pci"); y = y->parent) {
            if (x == y)
                return below;
            double port = port_bytes_s(y);
            below = below <= 0 || port < below ? port : below;
        }
        double port = port_bytes_s(x);
        least = least <= 0 || port < least ? port : least;
    }
    return 0;
}

double nccl_nvlink_bytes_s(uint32_t sm)
{
    double gb_s = sm >= 100 ? 40.1 : sm >= 90 ? 20.6 : sm == 86 ? 12.0 : sm >= 70 ? 20.0 : 18.0;
    return gb_s * 1e9;
}

/* ---- devices ---- */

static bool room(struct reader *r, const struct xml_element *e)
{
    if (r->dump->gpus.n + r->dump->nics.n < NCCL_DEVICES_MAX && r->ports.n < NCCL_DEVICES_MAX)
        return true;
    diag_error(r->diag, e->at, "too-many", "more than %u devices in one dump", NCCL_DEVICES_MAX);
    return false;
}

static void add_gpu(struct reader *r, const struct xml_element *pci, const struct xml_element *gpu)
{
    struct nccl_gpu g = {.pci = pci, .gpu = gpu, .host = r->host, .dev = -1};
    if (gpu) {
        g.dev = whole(gpu, "dev", -1);
        g.sm = (uint32_t)whole(gpu, "sm", 0);
        for (const struct xml_element *x = gpu->child; x; x = x->next) {
            if (strcmp(x->name, "nvlink") != 0)
                continue;
            int64_t links = whole(x, "count", 0);
            g.nvlinks += links > 0 && links <= 64 ? (uint32_t)links : 0;
            g.nvswitch = g.nvswitch || starts(text(x, "tclass"), "0x068");
        }
        if (g.nvlinks > 1024)
            g.nvlinks = 1024;
    }
    const char *device = text(pci, "device");
    if (starts(text(pci, "vendor"), "0x10de") && starts(device, "0x"))
        g.device = strtoul(device, NULL, 16);
    vec_push(r->arena, &r->dump->gpus, g);
}

/* Has this port (guid and port number; without a guid the row itself) been counted? */
static bool counted(const struct reader *r, const struct xml_element *net)
{
    const char *guid = text(net, "guid");
    for (size_t i = 0; *guid && i < r->ports.n; i++)
        if (!strcmp(text(r->ports.at[i], "guid"), guid) && !strcmp(text(r->ports.at[i], "port"), text(net, "port")))
            return true;
    return false;
}

/* The NIC that this port belongs to: the card with its guid, else a new one. */
static struct nccl_nic *nic_of(struct reader *r, const struct xml_element *pci, const char *guid)
{
    for (size_t i = 0; *guid && i < r->dump->nics.n; i++) {
        struct nccl_nic *n = &r->dump->nics.at[i];
        if (n->guid && n->host == r->host && !strcmp(n->guid, guid))
            return n;
    }
    vec_push(r->arena, &r->dump->nics, (struct nccl_nic){.pci = pci, .host = r->host, .guid = *guid ? guid : NULL});
    return &r->dump->nics.at[r->dump->nics.n - 1];
}

static bool add_ports(struct reader *r, const struct xml_element *pci, const struct xml_element *nic)
{
    struct nccl_nic *card = NULL; /* ports of one <nic> without guids are one card too */
    for (const struct xml_element *net = nic->child; net; net = net->next) {
        if (strcmp(net->name, "net") != 0 || !xml_attr(net, "dev"))
            continue;
        if (!room(r, net))
            return false;
        const char *guid = text(net, "guid");
        if (counted(r, net))
            continue;
        int64_t mb_s = whole(net, "speed", 0);
        if (*guid || !card)
            card = nic_of(r, pci, guid);
        card->bytes_s += (double)(mb_s > 0 ? mb_s : 10000) * 1e6 / 8;
        vec_push(r->arena, &r->ports, net);
    }
    return true;
}

/* ---- the tree ---- */

static void note_port(struct reader *r, const struct xml_element *pci)
{
    const char *speed = text(pci, "link_speed");
    unsigned lane = lane_of(speed);
    if (lane && lane != lane_of_nccl(speed) && !r->nspelling++)
        r->first_spelling = pci;
    double fastest = 0;
    for (const struct xml_element *x = pci->child; x; x = x->next)
        if (!strcmp(x->name, "pci") && lane_of(text(x, "link_speed")) && port_bytes_s(x) > fastest)
            fastest = port_bytes_s(x);
    if (lane && port_bytes_s(pci) < 0.45 * fastest && !r->nidle++)
        r->first_idle = pci;
}

static bool read_pci(struct reader *r, const struct xml_element *pci)
{
    const char *class = text(pci, "class");
    const struct xml_element *gpu = NULL, *nic = NULL;
    note_port(r, pci);
    for (const struct xml_element *x = pci->child; x; x = x->next) {
        gpu = !gpu && !strcmp(x->name, "gpu") ? x : gpu;
        nic = !nic && !strcmp(x->name, "nic") ? x : nic;
    }
    bool is_gpu = gpu || starts(class, "0x03"), is_nic = nic || starts(class, "0x02");
    if ((is_gpu || is_nic) && !room(r, pci))
        return false;
    if (is_gpu && (gpu || !r->dump->has_gpu))
        add_gpu(r, pci, gpu);
    else if (nic && r->dump->has_net)
        return add_ports(r, pci, nic);
    else if (is_nic && !r->dump->has_net)
        vec_push(r->arena, &r->dump->nics, (struct nccl_nic){.pci = pci, .host = r->host});
    return true;
}

/* Everything below e: vocabulary first, then devices.  Depth is bounded by the XML reader. */
static bool read_below(struct reader *r, const struct xml_element *e)
{
    for (const struct xml_element *x = e->child; x; x = x->next) {
        if (!check_element(r, x))
            continue;
        if (!strcmp(x->name, "pci") && !read_pci(r, x))
            return false;
        if (!strcmp(x->name, "nic") && !strcmp(e->name, "cpu") && r->dump->has_net && !add_ports(r, NULL, x))
            return false;
        if (!read_below(r, x))
            return false;
    }
    return true;
}

static void find_rows(struct nccl_dump *dump, const struct xml_element *e)
{
    for (const struct xml_element *x = e->child; x; x = x->next) {
        dump->has_gpu = dump->has_gpu || (!strcmp(x->name, "gpu") && !strcmp(e->name, "pci"));
        dump->has_net = dump->has_net || (!strcmp(x->name, "net") && !strcmp(e->name, "nic") && xml_attr(x, "dev"));
        find_rows(dump, x);
    }
}

/* CPUs of one host share a host_hash; without one all belong to a single host. */
static bool enter_host(struct reader *r, const struct xml_element *cpu)
{
    const char *hash = text(cpu, "host_hash");
    for (r->host = 0; r->host < r->hosts.n; r->host++)
        if (!strcmp(r->hosts.at[r->host], hash))
            return true;
    if (r->hosts.n == NCCL_DEVICES_MAX) {
        diag_error(r->diag, cpu->at, "too-many", "more than %u hosts in one dump", NCCL_DEVICES_MAX);
        return false;
    }
    vec_push(r->arena, &r->hosts, hash);
    return true;
}

static void report_ports(struct reader *r)
{
    if (r->nidle) {
        diag_warning(r->diag, r->first_idle->at, "idle-port",
                     "%u switch%s report%s a slower port upstream than the devices below; ignored", r->nidle,
                     r->nidle > 1 ? "es" : "", r->nidle > 1 ? "" : "s");
        diag_caret(r->diag, "'%.32s' here: an idle link?", text(r->first_idle, "link_speed"));
    }
    if (r->nspelling) {
        diag_warning(r->diag, r->first_spelling->at, "link-speed", "NCCL does not understand link_speed=\"%.32s\"",
                     text(r->first_spelling, "link_speed"));
        diag_caret(r->diag, "it takes it for 8 GT/s; %u like this", r->nspelling);
    }
}

bool nccl_read(struct arena *a, struct diag *d, const struct xml_element *system, struct nccl_dump *dump)
{
    struct reader r = {.arena = a, .diag = d, .dump = dump};
    *dump = (struct nccl_dump){0};
    if (strcmp(text(system, "version"), "1") != 0) {
        const struct xml_attr *v = xml_attr(system, "version");
        diag_error(d, v ? v->at : system->at, "bad-dump", "NCCL reads only <system version=\"1\">");
        return false;
    }
    check_attributes(&r, system, &rules[0]);
    find_rows(dump, system);
    for (const struct xml_element *cpu = system->child; cpu; cpu = cpu->next) {
        if (!check_element(&r, cpu))
            continue;
        if (!enter_host(&r, cpu) || !read_below(&r, cpu))
            return false;
        dump->nnuma += r.host == 0;
    }
    dump->nhosts = r.hosts.n ? (uint32_t)r.hosts.n : 1;
    report_ports(&r);
    return true;
}
