/* Clusters from other programs' files: every row of `goldens` makes the very cluster.xml that lies in
 * tests/cases/topologies-in/wanted (UPDATE=1 rewrites), with the links that the machines' makers publish; every case of
 * refused.cases says what it should; and damaged files end in errors or in clusters.  With LLMC_DUMPS=FOLDER in the
 * environment the public dumps there are imported as well. */

#include "compiler/import/yaml.h"
#include "compiler/import/cluster.h"

#include "compiler/support/vec.h"
#include "compiler/topology/topo_catalogue.h"
#include "compiler/topology/topo_table.h"
#include "tests/cases.h"
#include "tests/damage.h"
#include "tests/skip.h"
#include "tests/texts.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER "tests/cases/topologies-in/"

/* What a node's GPUs get by the maker's data-sheet, one direction, in GB/s; of the NICs, in Gb/s. */
struct figures {
    enum scale_up_kind kind;
    double scale_up_gb_s, nic_gb_s_per_gpu;
    uint32_t domain, nodes, tiers;
};

static const struct golden {
    const char *name, *files[4][2], *sets[8];
    struct figures wanted;
} goldens[] = {
    /* DGX H100: 900 GB/s of NVLink both ways; 16 nodes in leaves of 4, below two spines; measured over 16 ranks */
    {"h100-slurm",
     {{"nccl", "h100.xml"}, {"slurm", "topology.conf"}, {"slurm", "slurm.conf"}, {"nccl-tests", "all_reduce.txt"}},
     {0},
     {SCALE_UP_NVSWITCH, 450, 50, 8, 16, 3}},
    /* p4d: 600 GB/s both ways, four EFA of 100 Gb/s */
    {"a100-partial",
     {{"nccl", "a100-partial.xml"}},
     {"nodes=2", "nic=100Gb/s", "name=p4d"},
     {SCALE_UP_NVSWITCH, 300, 6.25, 8, 2, 1}},
    {"hgx-h100",
     {{"nvidia-smi", "hgx-h100.txt"}},
     {"nodes=hgx[1-4]", "gpu=H100-SXM", "nic=400Gb/s", "medium=roce"},
     {SCALE_UP_NVSWITCH, 450, 50, 8, 4, 1}},
    /* three bridges join two cards: 600 GB/s both ways */
    {"a100-bridged",
     {{"nvidia-smi", "a100-bridged.txt"}},
     {"nodes=1", "gpu=A100-PCIe-80GB"},
     {SCALE_UP_MESH, 300, 0, 2, 1, 0}},
    /* DGX-1: 300 GB/s both ways over six links, which lead to four of the seven others */
    {"dgx1-v100",
     {{"nvidia-smi", "dgx1-v100.txt"}},
     {"nodes=2", "gpu=V100", "nic=100Gb/s", "medium=infiniband"},
     {SCALE_UP_MESH, 150, 6.25, 8, 2, 1}},
    {"a100-hwloc", {{"hwloc", "a100-hwloc.xml"}}, {"nodes=4", "nic=200Gb/s"}, {SCALE_UP_NVSWITCH, 300, 25, 4, 4, 1}},
    {"uneven",
     {{"slurm", "uneven.conf"}},
     {"gpus=8", "gpu=H200", "nics=8", "nic=400Gb/s", "medium=infiniband"},
     {SCALE_UP_NVSWITCH, 450, 50, 8, 11, 3}},
    /* NVL72: 1,800 GB/s both ways among 18 trays of four */
    {"blocks",
     {{"slurm", "blocks.conf"}},
     {"gpus=4", "gpu=GB200", "nics=4", "nic=400Gb/s", "medium=infiniband", "span=18"},
     {SCALE_UP_NVSWITCH, 900, 50, 72, 72, 3}},
    /* some nodes of the tree; Slurm's word for the GPUs fits what is set */
    {"some-nodes",
     {{"slurm", "topology.conf"}, {"slurm", "slurm.conf"}},
     {"nodes=gpu[003-006]", "gpu=H100-SXM", "nics=8", "nic=400Gb/s", "medium=infiniband"},
     {SCALE_UP_NVSWITCH, 450, 50, 8, 4, 2}},
    /* the same trees as topology.yaml has them */
    {"slurm-yaml",
     {{"slurm", "topology.yaml"}, {"slurm", "slurm.conf"}},
     {"gpu=H100-SXM", "nics=8", "nic=400Gb/s", "medium=infiniband"},
     {SCALE_UP_NVSWITCH, 450, 50, 8, 16, 3}},
    {"blocks-yaml",
     {{"slurm", "blocks.yaml"}},
     {"gpus=4", "gpu=GB200", "nics=4", "nic=400Gb/s", "medium=infiniband", "span=18"},
     {SCALE_UP_NVSWITCH, 900, 50, 72, 72, 3}},
};

/* the rows that what was built can read: those in YAML are last */
static size_t ngoldens(void)
{
    return yaml_is_built ? ARRAY_LEN(goldens) : ARRAY_LEN(goldens) - 2;
}

static enum cluster_format format_of(const char *word)
{
    uint32_t i = 0;
    while (i < NCLUSTER_FORMATS && strcmp(cluster_formats[i], word) != 0)
        i++;
    CU_ASSERT_FATAL(i < NCLUSTER_FORMATS);
    return (enum cluster_format)i;
}

/* the files of a row, named without their folder; the dump with an href to itself */
static size_t files_of(struct arena *a, const struct golden *g, struct cluster_file *files)
{
    size_t n = 0;
    for (; n < ARRAY_LEN(g->files) && g->files[n][0]; n++) {
        struct diag *d = diag_new(a);
        struct source *s = source_read(a, d, arena_printf(a, FOLDER "%s", g->files[n][1]), CLUSTER_IMPORT_MAX);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        s->name = g->files[n][1];
        files[n] = (struct cluster_file){format_of(g->files[n][0]), s, NULL};
        if (files[n].format == CLUSTER_NCCL)
            files[n].href = g->files[n][1];
    }
    return n;
}

static size_t count(const char *const *words, size_t most)
{
    size_t n = 0;
    while (n < most && words[n])
        n++;
    return n;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* the number behind a key of `topo show --json`, behind another key */
static double figure(const char *json, const char *behind, const char *key)
{
    const char *at = strstr(json, behind);
    at = at ? strstr(at, key) : NULL;
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static void check_figures(const struct topo *t, const struct figures *f)
{
    char *json = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&json, &size);
    topo_print_json(t, out);
    fclose(out);
    CU_ASSERT_EQUAL(t->types[0].scale_up.kind, f->kind);
    CU_ASSERT_EQUAL(t->ntiers, f->tiers);
    CU_ASSERT(near(figure(json, "\"scale_up\"", "\"bytes_s_per_gpu\": "), f->scale_up_gb_s * 1e9));
    CU_ASSERT(near(figure(json, "\"scale_up\"", "\"domain_gpus\": "), f->domain));
    CU_ASSERT(near(figure(json, "\"nics\"", "\"nic_bytes_s_per_gpu\": "), f->nic_gb_s_per_gpu * 1e9));
    CU_ASSERT(near(figure(json, "\"schema\"", "\"nodes\": "), f->nodes));
    free(json);
}

static void test_goldens(void)
{
    for (size_t i = 0; i < ngoldens(); i++) {
        const struct golden *g = &goldens[i];
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        struct cluster_file files[4];
        struct topo *t = NULL;
        size_t n = files_of(a, g, files);
        const char *text = cluster_import(a, d, files, n, g->sets, count(g->sets, ARRAY_LEN(g->sets)), FOLDER, &t);
        diag_print(d, stdout, false);
        CU_ASSERT_FATAL(text && !diag_errors(d) && !diag_warnings(d));
        text_is_golden(text, arena_printf(a, FOLDER "wanted/%s.xml", g->name));
        check_figures(t, &g->wanted);
        arena_free(a);
    }
}

/* A case's text is files one after the other, each behind a line "% FORMAT NAME"; its words are settings. */
static size_t split(struct arena *a, const struct text_case *c, struct cluster_file *files, size_t most)
{
    size_t n = 0;
    for (const char *at = c->text, *next; at && *at && n < most; at = next) {
        char format[16], name[64];
        CU_ASSERT_FATAL(sscanf(at, "%% %15s %63s", format, name) == 2);
        const char *start = strchr(at, '\n');
        CU_ASSERT_PTR_NOT_NULL_FATAL(start);
        next = strstr(start, "\n% ");
        next = next ? next + 1 : NULL;
        struct source *s = ARENA_NEW(a, struct source);
        size_t size = (size_t)((next ? next : c->text + c->size) - start) - 1;
        *s = (struct source){.name = arena_strdup(a, name), .text = arena_strndup(a, start + 1, size), .size = size};
        files[n++] = (struct cluster_file){format_of(format), s, NULL};
    }
    return n;
}

static const char *complaint(struct arena *a, const struct text_case *c)
{
    struct diag *d = diag_new(a);
    struct cluster_file files[4];
    struct topo *t = NULL;
    const char *text = cluster_import(a, d, files, split(a, c, files, ARRAY_LEN(files)), c->words, c->nwords, NULL, &t);
    CU_ASSERT_EQUAL(!text, diag_errors(d) > 0);
    return arena_printf(a, "%s%s", text_of_diag(a, d, false), text ? text : "");
}

static void test_refused(void)
{
    struct arena *a = arena_new();
    CU_ASSERT(cases_check(a, FOLDER "refused.cases", complaint) >= 50);
    if (yaml_is_built)
        CU_ASSERT(cases_check(a, FOLDER "refused-yaml.cases", complaint) >= 14);
    arena_free(a);
}

struct damaged_file {
    const struct golden *golden;
    const struct cluster_file *whole; /* all files of the row */
    size_t n, which;
};

/* Whatever files hold, importing them ends in errors or in a cluster. */
static bool take(const struct damage *x, void *with)
{
    const struct damaged_file *of = (const struct damaged_file *)with + x->which;
    const struct golden *g = of->golden;
    struct cluster_file files[4];
    struct source damaged = {of->whole[of->which].source->name, x->text, x->size, false};
    for (size_t i = 0; i < of->n; i++)
        files[i] = (struct cluster_file){of->whole[i].format, i == of->which ? &damaged : of->whole[i].source, NULL};
    struct diag *d = diag_new(x->scratch);
    struct topo *t = NULL;
    bool made = cluster_import(x->scratch, d, files, of->n, g->sets, count(g->sets, ARRAY_LEN(g->sets)), NULL, &t);
    CU_ASSERT(made == (diag_errors(d) == 0) && made == (t != NULL));
    return made;
}

static void test_damaged(void)
{
    enum { MOST = 4 * ARRAY_LEN(goldens) };
    struct arena *a = arena_new();
    struct damage_text texts[MOST];
    struct damaged_file of[MOST];
    uint32_t n = 0;
    for (size_t i = 0; i < ngoldens(); i++) {
        struct cluster_file *whole = ARENA_ARRAY(a, struct cluster_file, 4);
        size_t nfiles = files_of(a, &goldens[i], whole);
        for (size_t k = 0; k < nfiles; k++, n++) {
            texts[n] = (struct damage_text){whole[k].source->text, whole[k].source->size};
            of[n] = (struct damaged_file){&goldens[i], whole, nfiles, k};
        }
    }
    damage_all(texts, n, 9000 / n, "0123456789-.,[]=#\\\"<>/ \n\tXNVSGPUaz\033\377", take, of);
    arena_free(a);
}

/* What real machines' public dumps say: GPUs, kind of network, NVLink. */
static void test_public(void)
{
    static const struct {
        const char *file, *sets[4], *model, *medium;
        double nic_gb_s, scale_up_gb_s;
    } dumps[] = {
        {"oci-h100-baremetal.xml", {"nodes=2"}, "H100-SXM", "roce", 45, 450},
        {"azure-ndv5-h100.xml", {"nodes=2", "gpu=H100-SXM", "nic=400Gb/s"}, "H100-SXM", "infiniband", 50, 450},
        {"azure-ndv4-a100.xml",
         {"nodes=2", "gpu=A100-SXM-40GB", "nic=200Gb/s"},
         "A100-SXM-40GB",
         "infiniband",
         25,
         300},
        {"aws-p4d-a100.xml", {"nodes=2", "nic=100Gb/s"}, "A100-SXM-40GB", "efa", 6.25, 300},
    };
    const char *folder = getenv("LLMC_DUMPS");
    if (!folder) {
        test_skip("LLMC_DUMPS is not set");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(dumps); i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        struct source *s = source_read(a, d, arena_printf(a, "%s/%s", folder, dumps[i].file), CLUSTER_IMPORT_MAX);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        struct cluster_file file = {CLUSTER_NCCL, s, NULL};
        struct topo *t = NULL;
        bool made = cluster_import(a, d, &file, 1, dumps[i].sets, count(dumps[i].sets, 4), NULL, &t);
        CU_ASSERT_FATAL(made);
        CU_ASSERT(t->types[0].gpus == 8 && !strcmp(t->types[0].gpu.model, dumps[i].model));
        CU_ASSERT_STRING_EQUAL(t->medium, dumps[i].medium);
        CU_ASSERT(near(t->types[0].nic_bytes_s_per_gpu, dumps[i].nic_gb_s * 1e9));
        CU_ASSERT(near(t->types[0].scale_up.bytes_s, dumps[i].scale_up_gb_s * 1e9));
        arena_free(a);
    }
}

static void test_catalogue(void)
{
    static const struct {
        const char *name, *model;
        uint32_t links;
    } names[] = {{"NVIDIA H100 80GB HBM3", "H100-SXM", 18},
                 {"nvidia_h100_80gb_hbm3", "H100-SXM", 18},
                 {"Tesla V100-SXM2-32GB", "V100", 6},
                 {"NVIDIA A100-SXM4-40GB", "A100-SXM-40GB", 12},
                 {"NVIDIA H800", "H800-SXM", 8},
                 {"NVIDIA GB200", "GB200", 18},
                 {"NVIDIA L40S", "L40S", 0}};
    uint32_t many;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *model = topo_catalogue_driver_name(names[i].name);
        CU_ASSERT_PTR_NOT_NULL_FATAL(model);
        CU_ASSERT_STRING_EQUAL(model, names[i].model);
        CU_ASSERT_EQUAL(topo_catalogue_nvlinks(topo_catalogue_find(model)), names[i].links);
    }
    CU_ASSERT_PTR_NULL(topo_catalogue_driver_name("NVIDIA H100"));
    CU_ASSERT_STRING_EQUAL(topo_catalogue_begins("h100", &many)->gpu.model, "H100-SXM");
    CU_ASSERT_EQUAL(many, 3);
    CU_ASSERT_PTR_NULL(topo_catalogue_begins("h10", &many));
    CU_ASSERT(near(topo_catalogue_nvlink_bytes_s(topo_catalogue_find("B200")), 50e9));
    CU_ASSERT(near(topo_table_bus_factor("all_reduce", 8), 1.75));
}

void suite_topo_import(void);
void suite_topo_import(void)
{
    CU_pSuite s = CU_add_suite("topo_import", NULL, NULL);
    CU_add_test(s, "whole cluster files, and published links", test_goldens);
    CU_add_test(s, "what is refused or asked for", test_refused);
    CU_add_test(s, "damaged files", test_damaged);
    CU_add_test(s, "GPUs by their drivers' names", test_catalogue);
    CU_add_test(s, "public dumps", test_public);
}
