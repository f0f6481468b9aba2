/* NCCL dumps: one small dump of our own for each habit of real ones, pasted into a cluster file.  With LLMC_DUMPS=FOLDER in
 * the environment the four public dumps that the rules were learnt from are read as well. */

#include "compiler/topology/topo.h"

#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* A node type of `gpus` GPUs with these elements inside; what was said goes to *said, one line per message. */
static struct topo *node(struct arena *a, const char *model, unsigned gpus, const char *inside, const char **said)
{
    char *text = arena_printf(a, "<cluster version='1'><node-type id='x' gpus='%u'><gpu model='%s'/>%s</node-type>"
                                 "<nodes type='x' count='1'/></cluster>", gpus, model, inside);
    struct source *s = ARENA_NEW(a, struct source);
    struct diag *d = diag_new(a);
    *s = (struct source){.name = "c.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, d, s, NULL);
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    diag_print(d, f, false);
    fclose(f);
    *said = arena_strndup(a, out, size);
    free(out);
    return t;
}

#define NVS "<scale-up kind='nvswitch' bandwidth='450GB/s'/>"
#define PCI(bus, class, speed) "<pci busid='0000:" bus ":00.0' class='" class "' link_speed='" speed "' link_width='16'"
#define GPU(bus) PCI(bus, "0x030200", "32.0 GT/s PCIe")
#define NIC(bus) PCI(bus, "0x020700", "32.0 GT/s PCIe")
#define SWITCH(bus, speed) PCI(bus, "0x060400", speed)

/* classes tell GPUs and NICs apart where a file has no rows for them; ports above the common switch do not count */
static void test_partial(void)
{
    struct arena *a = arena_new();
    const char *said;
    struct topo *t = node(a, "H100-SXM", 2, NVS "<nic count='2' bandwidth='400Gb/s'/><system version='1'><cpu numaid='0'>"
                          SWITCH("01", "32.0 GT/s PCIe") ">" GPU("02") "/>" NIC("03") "/></pci></cpu><cpu numaid='1'>"
                          SWITCH("11", "32.0 GT/s PCIe") ">" SWITCH("12", "16.0 GT/s PCIe") ">" GPU("13") "/></pci>" NIC("14")
                          "/></pci></cpu></system>", &said);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    const struct topo_detail *d = t->types[0].detail;
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    CU_ASSERT(d->ngpus == 2 && d->nnics == 2 && d->nnuma == 2 && d->nvlink_bytes_s == 0);
    CU_ASSERT(near(d->gpu_nic_bytes_s[0], 48e9) && d->gpu_nic_bytes_s[1] == 0 && d->gpu_nic_bytes_s[2] == 0);
    CU_ASSERT(near(d->gpu_nic_bytes_s[3], 24e9)); /* through the slower switch below the common one */
    CU_ASSERT(near(t->types[0].nic_bytes_s_per_gpu, 50e9));
    arena_free(a);
}

/* an idle-looking upstream port is named and ignored */
static void test_idle_port(void)
{
    struct arena *a = arena_new();
    const char *said;
    struct topo *t = node(a, "H100-SXM", 1, "<nic count='1' bandwidth='400Gb/s'/><system version='1'><cpu numaid='0'>"
                          SWITCH("01", "5.0 GT/s PCIe") ">" GPU("02") "/>" NIC("03") "/></pci></cpu></system>", &said);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT(near(t->types[0].detail->gpu_nic_bytes_s[0], 48e9));
    CU_ASSERT_PTR_NOT_NULL(strstr(said, "warning: 1 switch reports a slower port upstream than the devices below; ignored"));
    arena_free(a);
}

/* link_speed by its number; unknown is generation 3; a spelling that NCCL takes for generation 3 is named */
static void test_link_speed(void)
{
    static const struct {
        const char *speed, *width;
        double gb_s;
        bool warned;
    } cases[] = {
        {"2.5 GT/s", "16", 3, false},     {"5 GT/s", "16", 6, false},          {"8 GT/s", "8", 6, false},
        {"16 GT/s", "16", 24, false},     {"16.0 GT/s PCIe", "16", 24, false}, {"16.0 GT/s", "16", 24, true},
        {"32 GT/s PCIe/s", "16", 48, false}, {"64.0 GT/s PCIe", "16", 96, false}, {"", "16", 12, false},
        {"", "0", 12, false},             {"32.0 GT/s PCIe", "", 48, false},   {"5.0 GT/s PCIe", "4", 1.5, false},
        {"Unknown", "16", 12, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said;
        struct topo *t = node(a, "H100-SXM", 1,
                              arena_printf(a, "<nic count='1' bandwidth='400Gb/s'/><system version='1'><cpu numaid='0'>%s>"
                                              "<pci busid='0000:02:00.0' class='0x030200' link_speed='%s' link_width='%s'/>%s/></pci></cpu></system>",
                                           SWITCH("01", "64.0 GT/s PCIe"), cases[i].speed, cases[i].width, NIC("03")),
                              &said);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        CU_ASSERT(near(t->types[0].detail->gpu_nic_bytes_s[0], cases[i].gb_s < 48 ? cases[i].gb_s * 1e9 : 48e9));
        CU_ASSERT_EQUAL(strstr(said, "NCCL does not understand link_speed") != NULL, cases[i].warned);
        arena_free(a);
    }
}

/* ports of one card share a guid: they are one NIC and their speeds add up; a port listed twice counts once */
static void test_dual_port(void)
{
    struct arena *a = arena_new();
    const char *said;
    struct topo *t = node(a, "H100-SXM", 1, "<nic count='2' bandwidth='400Gb/s'/><system version='1'><cpu numaid='0'>" GPU("02") "/>"
                          NIC("03") "><nic><net dev='0' speed='200000' port='1' guid='0xa'/><net dev='1' speed='200000' port='2' guid='0xa'/>"
                          "<net dev='2' speed='200000' port='2' guid='0xa'/></nic></pci>"
                          NIC("04") "><nic><net dev='3' speed='200000' port='1' guid='0xb'/></nic></pci>"
                          NIC("05") "><nic><net dev='4' speed='200000' port='2' guid='0xb'/></nic></pci>"
                          NIC("06") "/></cpu></system>", &said);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT(t->types[0].detail->nnics == 2 && near(t->types[0].nic_bytes_s_per_gpu, 100e9) && !*said);
    arena_free(a);
}

/* speeds in the dump beat the file, and say so; without <nic> they are taken silently; no speed is 10 Gb/s */
static void test_nic_speed(void)
{
    static const struct {
        const char *nic, *speed;
        double bytes_s;
        bool warned;
    } cases[] = {
        {"<nic count='1' bandwidth='400Gb/s'/>", "400000", 50e9, false},
        {"<nic count='1' bandwidth='400Gb/s'/>", "360000", 45e9, true},
        {"", "360000", 45e9, false},
        {"", "0", 1.25e9, false},
        {"", "-1", 1.25e9, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said;
        struct topo *t = node(a, "H100-SXM", 1, arena_printf(a, "%s<system version='1'><cpu numaid='0'><nic><net dev='0' speed='%s'/></nic></cpu></system>",
                                                             cases[i].nic, cases[i].speed), &said);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        CU_ASSERT(near(t->types[0].nic_bytes_s_per_gpu, cases[i].bytes_s));
        CU_ASSERT_EQUAL(strstr(said, "the dump's are used") != NULL, cases[i].warned);
        arena_free(a);
    }
}

#define ROW(bus, dev, links) GPU(bus) "><gpu dev='" dev "' sm='90' rank='" dev "'>" links "</gpu></pci>"
#define LINKS "<nvlink target='0000:1a:00.0' count='9' tclass='0x068000'/><nvlink target='fffffff:ffff:ff' count='9' tclass='0x068000'/>"

/* GPUs are numbered by dev, not by bus or document order */
static void test_order_and_nvlink(void)
{
    struct arena *a = arena_new();
    const char *said;
    struct topo *t = node(a, "H100-SXM", 2, NVS "<nic count='1' bandwidth='400Gb/s'/><system version='1'><cpu numaid='0'>"
                          ROW("01", "1", LINKS) SWITCH("02", "32.0 GT/s PCIe") ">" ROW("03", "0", LINKS) NIC("04") "/></pci></cpu></system>", &said);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    const struct topo_detail *d = t->types[0].detail;
    CU_ASSERT(near(d->gpu_nic_bytes_s[0], 48e9) && d->gpu_nic_bytes_s[1] == 0);
    CU_ASSERT(near(d->nvlink_bytes_s, 18 * 20.6e9) && !*said);
    arena_free(a);
}

/* several hosts in one file are one NVLink domain; the first gives the detail */
static void test_hosts(void)
{
    static const struct {
        const char *span, *says;
    } cases[] = {{"span='2'", ""}, {"", "the dump shows an NVLink domain of 2 hosts, but span is 1"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said;
        struct topo *t = node(a, "H100-SXM", 1, arena_printf(a, "<scale-up kind='nvswitch' bandwidth='450GB/s' %s/><nic count='1' bandwidth='400Gb/s'/>"
                                                                "<system version='1'><cpu numaid='0' host_hash='0x1'>" ROW("01", "0", LINKS) NIC("02")
                                                                "/></cpu><cpu numaid='0' host_hash='0x2'>" ROW("01", "0", LINKS) NIC("02") "/></cpu></system>",
                                                             cases[i].span), &said);
        CU_ASSERT_EQUAL(t != NULL, !*cases[i].says);
        CU_ASSERT_PTR_NOT_NULL(strstr(said, cases[i].says));
        if (t)
            CU_ASSERT(t->types[0].detail->ngpus == 1 && t->types[0].detail->nnics == 1 && t->types[0].detail->nnuma == 1);
        arena_free(a);
    }
}

/* contradictions and oddities that are only worth a warning */
static void test_warnings(void)
{
    static const struct {
        const char *model, *scale_up, *cpu, *says;
    } cases[] = {
        {"A100-SXM", "", PCI("01", "0x030200", "") " vendor='0x10de' device='0x2330'/>", "the GPUs in the dump are H100-SXM (device 0x2330), not A100-SXM"},
        {"A100-SXM", "", PCI("01", "0x030200", "") " vendor='0x10de' device='0x20b0'/>", "the GPUs in the dump are A100-SXM-40GB"},
        {"A100-SXM-40GB", "", PCI("01", "0x030200", "") " vendor='0x10de' device='0x20b0'/>", NULL},
        {"A100-SXM", "", ROW("01", "0", ""), "the GPUs in the dump have sm 90, but A100-SXM has 80"},
        {"H100-SXM", "<scale-up kind='nvswitch' bandwidth='900GB/s'/>", ROW("01", "0", LINKS), "18 NVLinks per GPU give about 371GB/s, but <scale-up> says 900GB/s"},
        {"H100-SXM", "<scale-up kind='none'/>", ROW("01", "0", LINKS), "the dump lists NVLink, but <scale-up> has kind=\"none\""},
        {"H100-SXM", "", "<pci busid='a' class='0x060400'><pcie/></pci>", "NCCL ignores <pcie> in <pci>"},
        {"H100-SXM", "", "<gpu dev='0'/>", "NCCL ignores <gpu> in <cpu>"},
        {"H100-SXM", "", ROW("01", "0", "<nvlink target='1,2,3' nlinks='4'/>"), "NCCL ignores the attribute 'nlinks' of <nvlink>"},
        {"H100-SXM", "", "", "the dump lists neither GPUs nor NICs"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said;
        struct topo *t = node(a, cases[i].model, 1, arena_printf(a, "%s<system version='1'><cpu numaid='0'>%s</cpu></system>", cases[i].scale_up,
                                                                 cases[i].cpu), &said);
        CU_ASSERT_PTR_NOT_NULL(t);
        CU_ASSERT(cases[i].says ? strstr(said, cases[i].says) != NULL : !*said);
        arena_free(a);
    }
}

/* a GPU that nobody knows gets its scale-up from the dump */
static void test_unknown_gpu(void)
{
    struct arena *a = arena_new();
    const char *text = "<cluster version='1'><node-type id='x' gpus='1'><gpu model='own' memory='8GiB'><peak dtype='fp32' rate='1TFLOP/s'/></gpu>"
                              "<system version='1'><cpu numaid='0'>" ROW("01", "0", LINKS) "</cpu></system></node-type><nodes type='x' count='1'/></cluster>";
    struct source s = {.name = "c.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, diag_new(a), &s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT(t->types[0].scale_up.kind == SCALE_UP_NVSWITCH && near(t->types[0].scale_up.bytes_s, 18 * 20.6e9));
    arena_free(a);
}

/* The public dumps themselves are not part of the project; name their folder to read them. */
static void test_real(void)
{
    static const struct {
        const char *file, *model;
        unsigned nics, gb_s;
        double nvlink_bytes_s, path_bytes_s;
    } cases[] = {
        {"aws-p4d-a100.xml", "A100-SXM-40GB", 4, 100, 0, 12e9},
        {"azure-ndv4-a100.xml", "A100-SXM", 8, 200, 0, 24e9},
        {"azure-ndv5-h100.xml", "H100-SXM", 8, 400, 0, 48e9},
        {"oci-h100-baremetal.xml", "H100-SXM", 8, 360, 370.8e9, 48e9},
    };
    const char *folder = getenv("LLMC_DUMPS");
    for (size_t i = 0; folder && i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        const char *text = arena_printf(a, "<cluster version='1'><node-type id='x' gpus='8'><gpu model='%s'/><nic count='%u' bandwidth='%uGb/s'/>"
                                           "<topology format='nccl' href='%s'/></node-type><nodes type='x' count='1'/></cluster>",
                                        cases[i].model, cases[i].nics, cases[i].gb_s, cases[i].file);
        struct source s = {.name = "c.xml", .text = text, .size = strlen(text)};
        struct topo *t = topo_parse(a, d, &s, arena_printf(a, "%s/", folder));
        diag_print(d, stdout, false);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        const struct topo_detail *detail = t->types[0].detail;
        CU_ASSERT(detail->ngpus == 8 && detail->nnics == cases[i].nics);
        CU_ASSERT(near(detail->nvlink_bytes_s, cases[i].nvlink_bytes_s) && near(detail->gpu_nic_bytes_s[0], cases[i].path_bytes_s));
        arena_free(a);
    }
}

void suite_topo_nccl(void);
void suite_topo_nccl(void)
{
    CU_pSuite s = CU_add_suite("topo_nccl", NULL, NULL);
    CU_add_test(s, "partial files", test_partial);
    CU_add_test(s, "idle upstream ports", test_idle_port);
    CU_add_test(s, "link speeds", test_link_speed);
    CU_add_test(s, "cards with two ports", test_dual_port);
    CU_add_test(s, "NIC speeds", test_nic_speed);
    CU_add_test(s, "GPU order and NVLinks", test_order_and_nvlink);
    CU_add_test(s, "several hosts", test_hosts);
    CU_add_test(s, "warnings", test_warnings);
    CU_add_test(s, "scale-up from the dump", test_unknown_gpu);
    CU_add_test(s, "public dumps", test_real);
}
