/* One cluster of many files: facts merged, settings taken, what is missing asked for.
 *
 * Settings are read first, so that a file that says otherwise is only warned about; Slurm's files are put together when
 * all have been read, since the switches stand in one and the nodes in another. */

#include "compiler/import/cluster_facts.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/topology/hostlist.h"
#include "compiler/topology/topo_catalogue.h"
#include "compiler/topology/topo_rules.h"

#include <inttypes.h>
#include <strings.h>

const char *const cluster_formats[NCLUSTER_FORMATS] = {
    [CLUSTER_NCCL] = "nccl",
    [CLUSTER_SLURM] = "slurm",
    [CLUSTER_NVIDIA_SMI] = "nvidia-smi",
    [CLUSTER_NCCL_TESTS] = "nccl-tests",
    [CLUSTER_HWLOC] = "hwloc",
};

const char *const cluster_keys[NCLUSTER_KEYS] = {
    [KEY_NODES] = "nodes", [KEY_GPUS] = "gpus",     [KEY_GPU] = "gpu",           [KEY_NICS] = "nics",
    [KEY_NIC] = "nic",     [KEY_MEDIUM] = "medium", [KEY_SPAN] = "span",         [KEY_NAME] = "name",
    [KEY_OP] = "op",       [KEY_RANKS] = "ranks",   [KEY_PER_NODE] = "per-node",
};

/* ---- facts ---- */

bool cluster_say(struct cluster_facts *f, enum cluster_key key, const char *text, struct span from)
{
    struct cluster_fact *fact = &f->facts[key];
    bool same = fact->text && !strcmp(fact->text, text);
    if (fact->is == FACT_SET && !same) {
        diag_warning(f->diag, from, "overridden", "%s says %s = %s, but %s is set", from.source->name,
                     cluster_keys[key], text, fact->text);
        fact->against = from.source;
    }
    if (fact->is == FACT_SAID && !same) {
        diag_error(f->diag, from, "contradiction", "%s says %s = %s, but %s says %s", from.source->name,
                   cluster_keys[key], text, fact->from.source->name, fact->text);
        diag_note(f->diag, fact->from, "said here");
        diag_help(f->diag, "--set %s=... decides", cluster_keys[key]);
        return false;
    }
    if (fact->is < FACT_SAID)
        *fact = (struct cluster_fact){.is = FACT_SAID, .text = arena_strdup(f->arena, text), .from = from};
    return true;
}

bool cluster_say_count(struct cluster_facts *f, enum cluster_key key, uint64_t count, struct span from)
{
    return cluster_say(f, key, arena_printf(f->arena, "%" PRIu64, count), from);
}

bool cluster_say_device(struct cluster_facts *f, unsigned long device, struct span from)
{
    const char *model = topo_catalogue_device(device);
    if (model)
        return cluster_say(f, KEY_GPU, model, from);
    if (device && f->facts[KEY_GPU].is != FACT_SET)
        diag_warning(f->diag, from, "unknown-gpu", "the catalogue has no GPU with PCI device 0x%lx", device);
    return true;
}

void cluster_guess(struct cluster_facts *f, enum cluster_key key, const char *text, struct span from)
{
    if (f->facts[key].is == FACT_OPEN)
        f->facts[key] = (struct cluster_fact){.is = FACT_GUESSED, .text = arena_strdup(f->arena, text), .from = from};
}

void cluster_assume(struct cluster_facts *f, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *text = arena_vprintf(f->arena, fmt, ap);
    va_end(ap);
    vec_push(f->arena, &f->assumed, text);
}

const char *cluster_medium(unsigned long class, unsigned long vendor, unsigned long device)
{
    if (class == 0x0207)
        return "infiniband";
    if (vendor == 0x1d0f && device >> 8 == 0xef)
        return "efa";
    return class == 0x0200 && vendor == 0x15b3 ? "roce" : "";
}

uint32_t cluster_count(const struct cluster_facts *f, enum cluster_key key)
{
    uint64_t count = 0;
    struct units_error e;
    const char *text = f->facts[key].text;
    return text && units_count(text, strlen(text), &count, &e) && count <= UINT32_MAX ? (uint32_t)count : 0;
}

/* ---- links ---- */

/* the GPUs that links join to GPU `first`, in this mask */
static uint64_t joined(uint32_t n, const uint32_t *links, uint32_t first)
{
    uint64_t mask = 1ull << first, before = 0;
    while (mask != before) {
        before = mask;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; before >> i & 1 && k < n; k++)
                mask |= links[i * n + k] ? 1ull << k : 0;
    }
    return mask;
}

bool cluster_say_links(struct cluster_facts *f, uint32_t n, const uint32_t *links, bool pairs, struct span from)
{
    struct cluster_links x = {.node_gpus = n, .sum = UINT32_MAX, .in_order = true, .from = from};
    bool first = true, even = true;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t domain = joined(n, links, i);
        uint32_t size = (uint32_t)__builtin_popcountll(domain), sum = 0;
        if (i && size != x.domain) {
            diag_error(f->diag, from, "nvlink-fault", "NVLink joins GPU 0 to a group of %u, but GPU %u to one of %u",
                       x.domain, i, size);
            return false;
        }
        x.domain = size;
        x.in_order = x.in_order && (size == 64 || domain >> (i / size * size) == (1ull << size) - 1);
        for (uint32_t k = 0; k < n; k++) {
            sum += links[i * n + k];
            if (k == i || !(domain >> k & 1))
                continue;
            x.pair = first ? links[i * n + k] : x.pair;
            even = even && links[i * n + k] == x.pair;
            first = false;
        }
        x.sum = sum < x.sum ? sum : x.sum;
    }
    x.by = x.domain == 1 ? LINKS_NONE : pairs ? LINKS_PAIRS : LINKS_EITHER;
    x.pair = even ? x.pair : 0;
    vec_push(f->arena, &f->links, x);
    return true;
}

/* ---- settings ---- */

static bool bad_setting(struct cluster_facts *f, struct span value, enum cluster_key key, const char *wants)
{
    diag_error(f->diag, value, "bad-value", "%s wants %s", cluster_keys[key], wants);
    return false;
}

static bool check_count(struct cluster_facts *f, enum cluster_key key, const char *text, struct span at, uint64_t most)
{
    uint64_t count = 0;
    struct units_error e;
    return (units_count(text, strlen(text), &count, &e) && count >= 1 && count <= most) ||
           bad_setting(f, at, key, arena_printf(f->arena, "a number of 1 to %" PRIu64, most));
}

static bool check_word(struct cluster_facts *f, enum cluster_key key, const char *text, struct span at,
                       const char *const *words, size_t n)
{
    struct strbuf list = {0};
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(words[i], text))
            return strbuf_free(&list), true;
        strbuf_printf(&list, "%s%s", i ? i + 1 < n ? ", " : " or " : "", words[i]);
    }
    const char *wants = arena_strdup(f->arena, list.text);
    strbuf_free(&list);
    return bad_setting(f, at, key, wants);
}

static bool check_gpu(struct cluster_facts *f, const char *text, struct span at)
{
    const struct topo_catalogue_gpu *row = topo_catalogue_find(text);
    if (row) {
        f->facts[KEY_GPU].text = row->gpu.model;
        return true;
    }
    const char *near = topo_catalogue_nearest(text), *several = topo_catalogue_several(f->arena, text);
    if (several) {
        diag_error(f->diag, at, "which-gpu", "'%.64s' is the beginning of several GPUs' names", text);
        diag_caret(f->diag, "which of %s?", several);
        return false;
    }
    diag_error(f->diag, at, "unknown-gpu", "'%.64s' is not in the catalogue", text);
    if (near)
        diag_caret(f->diag, "did you mean '%s'?", near);
    diag_help(f->diag,
              "'llmc help gpus' lists them; take the nearest one, then give the file's <gpu> memory and peaks");
    return false;
}

/* a number, or host names */
static bool check_nodes(struct cluster_facts *f, const char *text, struct span at)
{
    struct hostlist list;
    struct hostlist_error e;
    uint64_t ignored;
    struct units_error not_a_number;
    if (units_count(text, strlen(text), &ignored, &not_a_number))
        return check_count(f, KEY_NODES, text, at, TOPO_NODES_MAX);
    if (!hostlist_expand(f->arena, text, strlen(text), TOPO_NODES_MAX, &list, &e)) {
        diag_error(f->diag, (struct span){at.source, at.start + (uint32_t)e.at, (uint32_t)e.length}, "bad-hostlist",
                   "%s", e.message);
        return false;
    }
    f->nnodes = list.n;
    f->nodes = list.names;
    return true;
}

static bool check_setting(struct cluster_facts *f, enum cluster_key key, const char *text, struct span at)
{
    double rate;
    struct units_error e;
    switch (key) {
    case KEY_NODES:
        return check_nodes(f, text, at);
    case KEY_GPUS:
    case KEY_NICS:
        return check_count(f, key, text, at, TOPO_NODE_GPUS_MAX);
    case KEY_SPAN:
    case KEY_RANKS:
    case KEY_PER_NODE:
        return check_count(f, key, text, at, TOPO_NODES_MAX);
    case KEY_GPU:
        return check_gpu(f, text, at);
    case KEY_NIC:
        return (units_bytes_s(text, strlen(text), &rate, &e) && rate > 0) ||
               bad_setting(f, at, key, "a bandwidth, such as 400Gb/s");
    case KEY_MEDIUM:
        return check_word(f, key, text, at, topo_medium_words, ARRAY_LEN(topo_medium_words));
    case KEY_OP:
        return check_word(f, key, text, at, topo_op_words, ARRAY_LEN(topo_op_words));
    case KEY_NAME:
        return *text || bad_setting(f, at, key, "a word");
    case NCLUSTER_KEYS:
        break;
    }
    return false;
}

static bool read_setting(struct cluster_facts *f, const char *set)
{
    struct source *s = ARENA_NEW(f->arena, struct source);
    *s = (struct source){.name = "--set", .text = set, .size = strlen(set)};
    uint32_t n = (uint32_t)strcspn(set, "="), k = 0;
    const char *key = arena_strndup(f->arena, set, n), *text = set[n] ? set + n + 1 : "";
    while (k < NCLUSTER_KEYS && strcmp(cluster_keys[k], key) != 0)
        k++;
    if (k == NCLUSTER_KEYS) {
        const char *near = diag_nearest(key, cluster_keys, NCLUSTER_KEYS);
        diag_error(f->diag, (struct span){s, 0, n}, "unknown-word", "'%.40s' is nothing that can be set here", key);
        if (near)
            diag_caret(f->diag, "did you mean '%s'?", near);
        return false;
    }
    struct span at = {s, set[n] ? n + 1 : n, (uint32_t)strlen(text)};
    if (f->facts[k].is == FACT_SET) {
        diag_error(f->diag, (struct span){s, 0, n}, "repeated-name", "%s is set twice", key);
        return false;
    }
    f->facts[k] = (struct cluster_fact){.is = FACT_SET, .text = text, .from = at};
    return check_setting(f, (enum cluster_key)k, text, at);
}

/* ---- what is missing ---- */

static void ask(struct cluster_facts *f, struct strbuf *b, enum cluster_key key, const char *way)
{
    if (f->facts[key].is == FACT_OPEN)
        strbuf_printf(b, "%s%s (--set %s=%s)", b->length ? ", " : "", cluster_keys[key], cluster_keys[key], way);
}

/* Where all nodes are one NVLink domain, or there is but one, no network is needed. */
static bool needs_network(const struct cluster_facts *f)
{
    uint32_t span = cluster_count(f, KEY_SPAN);
    return f->facts[KEY_NODES].is == FACT_OPEN || f->nnodes > (span ? span : 1);
}

static bool ask_for_missing(struct cluster_facts *f)
{
    struct strbuf b = {0};
    ask(f, &b, KEY_NODES, "N, or their names");
    ask(f, &b, KEY_GPUS, "8");
    ask(f, &b, KEY_GPU, "H100-SXM");
    if (needs_network(f)) {
        ask(f, &b, KEY_NICS, "8");
        ask(f, &b, KEY_NIC, "400Gb/s");
        ask(f, &b, KEY_MEDIUM, "infiniband");
    }
    for (size_t i = 0; i < f->curves.n; i++) {
        if (!f->curves.at[i].op && f->facts[KEY_OP].is == FACT_OPEN && !strstr(b.length ? b.text : "", "op="))
            ask(f, &b, KEY_OP, "all_reduce");
        if (!f->curves.at[i].ranks && f->facts[KEY_RANKS].is == FACT_OPEN && !strstr(b.length ? b.text : "", "ranks="))
            ask(f, &b, KEY_RANKS, "8");
    }
    bool complete = !b.length;
    if (!complete)
        diag_error(f->diag, (struct span){0}, "missing", "the files do not say: %s", b.text);
    if (!complete && f->facts[KEY_NODES].is == FACT_OPEN && strstr(b.text, "medium"))
        diag_help(f->diag, "with nodes=1 no network is asked for");
    strbuf_free(&b);
    return complete;
}

/* ---- all of it ---- */

/* Slurm's word for a GPU ("h100") may be short for several models, of which another file may tell one. */
static bool settle_gpu(struct cluster_facts *f)
{
    const struct cluster_fact *fact = &f->facts[KEY_GPU];
    uint32_t many = 0;
    const struct topo_catalogue_gpu *row = f->gres ? topo_catalogue_begins(f->gres, &many) : NULL;
    if (!row || fact->is == FACT_SET)
        return true;
    bool exact = !strcasecmp(row->gpu.model, f->gres);
    if (fact->is == FACT_GUESSED && many > 1 && !exact) {
        const char *word = arena_strndup(f->arena, row->gpu.model, strlen(f->gres));
        diag_warning(f->diag, f->gres_at, "which-gpu", "'%.64s' is the beginning of several GPUs' names: taken for %s",
                     f->gres, row->gpu.model);
        diag_caret(f->diag, "which of %s?", topo_catalogue_several(f->arena, word));
        cluster_assume(f, "GPUs of the type '%s' are %s", f->gres, row->gpu.model);
    }
    if (fact->is == FACT_GUESSED || !strncasecmp(fact->text, f->gres, strlen(f->gres)))
        return true;
    return cluster_say(f, KEY_GPU, f->gres, f->gres_at);
}

static bool read_file(struct cluster_facts *f, const struct cluster_file *file)
{
    switch (file->format) {
    case CLUSTER_NCCL:
        return cluster_read_nccl(f, file);
    case CLUSTER_SLURM:
        return cluster_read_slurm(f, file);
    case CLUSTER_NVIDIA_SMI:
        return cluster_read_nvidia_smi(f, file);
    case CLUSTER_NCCL_TESTS:
        return cluster_read_nccl_tests(f, file);
    case CLUSTER_HWLOC:
        return cluster_read_hwloc(f, file);
    case NCLUSTER_FORMATS:
        break;
    }
    return false;
}

char *cluster_import(struct arena *a, struct diag *d, const struct cluster_file *files, size_t nfiles,
                     const char *const *sets, size_t nsets, const char *folder, struct topo **topo)
{
    struct cluster_facts f = {.arena = a, .diag = d, .files = files, .nfiles = nfiles};
    bool fine = true;
    for (size_t i = 0; i < nsets; i++)
        fine = read_setting(&f, sets[i]) && fine;
    for (size_t i = 0; i < nfiles; i++)
        fine = read_file(&f, &files[i]) && fine;
    if (!fine || (f.slurm && !cluster_resolve_slurm(&f)))
        return NULL;
    if (!f.nnodes)
        f.nnodes = cluster_count(&f, KEY_NODES);
    if (!settle_gpu(&f) || !ask_for_missing(&f))
        return NULL;
    char *text = cluster_write(&f);
    if (!text)
        return NULL;
    struct source *own = ARENA_NEW(a, struct source);
    *own = (struct source){.name = "cluster.xml", .text = text, .size = strlen(text)};
    *topo = topo_parse(a, d, own, folder);
    return *topo ? text : NULL;
}
