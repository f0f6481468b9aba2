/* NCCL dumps: one small dump of our own for each habit of real ones, pasted into a cluster file.  With
 * LLMC_DUMPS=FOLDER in the environment the four public dumps that the rules were learnt from are read as
 * well. */

#include "compiler/topology/topo.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"
#include "compiler/topology/topo_nccl.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* One machine with these GPUs, the elements `with` and this dump; what was said goes to *said. */
static const struct topo_node_type *node(struct arena *a, const char *model, unsigned gpus, const char *with,
                                         const char *dump, const char **said)
{
    static const char form[] =
        "<cluster version='1'><node-type id='x' gpus='%u'><gpu model='%s'/>%s"
        "<system version='1'>%s</system></node-type><nodes type='x' count='1'/></cluster>";
    char *text = arena_printf(a, form, gpus, model, with, dump), *out = NULL;
    struct source *s = ARENA_NEW(a, struct source);
    struct diag *d = diag_new(a);
    *s = (struct source){.name = "c.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, d, s, NULL);
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    diag_print(d, f, false);
    fclose(f);
    *said = arena_strndup(a, out, size);
    free(out);
    return t ? &t->types[0] : NULL;
}

/* clang-format off */
#define GEN5 "32.0 GT/s PCIe"
#define PCI(bus, class, speed) "<pci busid='0000:" bus ":00.0' class='" class "' link_speed='" speed "' link_width='16'"
#define GPU(bus) PCI(bus, "0x030200", GEN5)
#define NIC(bus) PCI(bus, "0x020700", GEN5)
#define SWITCH(bus, speed, below) PCI(bus, "0x060400", speed) ">" below "</pci>"
#define CPU_OPEN "<cpu numaid='0'>"
#define CPU(below) CPU_OPEN below "</cpu>"
#define HOST(hash, below) "<cpu numaid='0' host_hash='" hash "'>" below "</cpu>"
#define NET(dev, speed, port, guid) "<net dev='" dev "' speed='" speed "' port='" port "' guid='" guid "'/>"
#define ROW(bus, dev, links) GPU(bus) "><gpu dev='" dev "' sm='90' rank='" dev "'>" links "</gpu></pci>"
#define LINKS "<nvlink target='0000:1a:00.0' count='9' tclass='0x068000'/>" \
              "<nvlink target='fffffff:ffff:ff' count='9' tclass='0x068000'/>"
#define UP "<scale-up kind='nvswitch' bandwidth='450GB/s'/>"
#define ONE_NIC "<nic count='1' bandwidth='400Gb/s'/>"
#define TWO_NICS "<nic count='2' bandwidth='400Gb/s'/>"
/* clang-format on */

/* classes tell GPUs and NICs apart where a file has no rows for them; ports above the common switch do not
 * count */
static void test_partial(void)
{
    static const char dump[] = CPU(SWITCH("01", GEN5, GPU("02") "/>" NIC("03") "/>"))
        CPU(SWITCH("11", GEN5, SWITCH("12", "16.0 GT/s PCIe", GPU("13") "/>") NIC("14") "/>"));
    struct arena *a = arena_new();
    const char *said;
    const struct topo_node_type *type = node(a, "H100-SXM", 2, UP TWO_NICS, dump, &said);
    CU_ASSERT_FATAL(type && type->detail);
    const struct topo_detail *d = type->detail;
    CU_ASSERT(d->ngpus == 2 && d->nnics == 2 && d->nnuma == 2 && d->nvlink_bytes_s == 0);
    CU_ASSERT(near(d->gpu_nic_bytes_s[0], 48e9) && d->gpu_nic_bytes_s[1] == 0 && d->gpu_nic_bytes_s[2] == 0);
    CU_ASSERT(near(d->gpu_nic_bytes_s[3], 24e9)); /* through the slower switch below the common one */
    CU_ASSERT(near(type->nic_bytes_s_per_gpu, 50e9));
    CU_ASSERT_PTR_NULL(strstr(said, "slower port upstream")); /* half the speed is a port of its own right */
    arena_free(a);
}

/* an idle-looking upstream port is named and ignored */
static void test_idle_port(void)
{
    static const char dump[] = CPU(SWITCH("01", "5.0 GT/s PCIe", GPU("02") "/>" NIC("03") "/>"));
    struct arena *a = arena_new();
    const char *said, *want = "1 switch reports a slower port upstream than the devices below; ignored";
    const struct topo_node_type *type = node(a, "H100-SXM", 1, ONE_NIC, dump, &said);
    CU_ASSERT_PTR_NOT_NULL_FATAL(type);
    CU_ASSERT(near(type->detail->gpu_nic_bytes_s[0], 48e9));
    CU_ASSERT_PTR_NOT_NULL(strstr(said, want));
    arena_free(a);
}

/* link_speed by its number; unknown is generation 3; a spelling that NCCL takes for generation 3 is named */
static void test_link_speed(void)
{
    static const struct {
        const char *speed, *width;
        double gb_s; /* of the path to a NIC at 48 */
        bool warned;
    } cases[] = {
        {"2.5 GT/s", "16", 3, false},
        {"5 GT/s", "16", 6, false},
        {"8 GT/s", "8", 6, false},
        {"16 GT/s", "16", 24, false},
        {"16.0 GT/s PCIe", "16", 24, false},
        {"16.0 GT/s", "16", 24, true},
        {"32 GT/s PCIe/s", "16", 48, false},
        {"64.0 GT/s PCIe", "16", 48, false},
        {"", "16", 12, false},
        {"", "0", 12, false},
        {"32.0 GT/s PCIe", "", 48, false},
        {"5.0 GT/s PCIe", "4", 1.5, false},
        {"Unknown", "16", 12, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said;
        const char *dump = arena_printf(
            a,
            CPU(SWITCH("01", "64.0 GT/s PCIe",
                       "<pci class='0x030200' link_speed='%s' link_width='%s'/>" NIC("03") "/>")),
            cases[i].speed, cases[i].width);
        const struct topo_node_type *type = node(a, "H100-SXM", 1, ONE_NIC, dump, &said);
        CU_ASSERT_PTR_NOT_NULL_FATAL(type);
        CU_ASSERT(near(type->detail->gpu_nic_bytes_s[0], cases[i].gb_s * 1e9));
        CU_ASSERT_EQUAL(strstr(said, "NCCL does not understand link_speed") != NULL, cases[i].warned);
        arena_free(a);
    }
}

/* Ports of one card share a guid: they are one NIC and their speeds add up, on one PCI function or two.  A
 * port listed twice counts once, and where some NICs have rows one without does not count. */
static void test_dual_port(void)
{
    static const char dump[] =
        CPU(GPU("02") "/>" NIC("03") "><nic>" NET("0", "200000", "1", "0xa") NET("1", "200000", "2", "0xa")
                NET("2", "200000", "2", "0xa") "</nic></pci>" NIC("04") "><nic>" NET(
                    "3", "200000", "1",
                    "0xb") "</nic></pci>" NIC("05") "><nic>" NET("4", "200000", "2",
                                                                 "0xb") "</nic></pci>" NIC("06") "/>");
    struct arena *a = arena_new();
    const char *said;
    const struct topo_node_type *type = node(a, "H100-SXM", 1, TWO_NICS, dump, &said);
    CU_ASSERT_PTR_NOT_NULL_FATAL(type);
    CU_ASSERT(type->detail->nnics == 2 && near(type->nic_bytes_s_per_gpu, 100e9) && !*said);
    arena_free(a);
}

/* speeds in the dump beat the file, and say so; without <nic> they are taken silently; no speed is 10 Gb/s */
static void test_nic_speed(void)
{
    static const struct {
        const char *with, *speed;
        double bytes_s;
        bool warned;
    } cases[] = {
        {ONE_NIC, "400000", 50e9, false}, {ONE_NIC, "360000", 45e9, true}, {"", "360000", 45e9, false},
        {"", "0", 1.25e9, false},         {"", "-1", 1.25e9, false},
        {"", "2147483646", 2147483646 * 1.25e5, false}, {"", "2147483648", 1.25e9, false},
        {"", "99999999999999999999", 1.25e9, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said,
            *dump = arena_printf(a, CPU("<nic><net dev='0' speed='%s'/></nic>"), cases[i].speed);
        const struct topo_node_type *type = node(a, "H100-SXM", 1, cases[i].with, dump, &said);
        CU_ASSERT_PTR_NOT_NULL_FATAL(type);
        CU_ASSERT(near(type->nic_bytes_s_per_gpu, cases[i].bytes_s));
        CU_ASSERT_EQUAL(strstr(said, "the dump's are used") != NULL, cases[i].warned);
        arena_free(a);
    }
}

/* GPUs are numbered by dev, not by bus or document order */
static void test_order_and_nvlink(void)
{
    static const char dump[] =
        CPU(ROW("01", "1", LINKS) SWITCH("02", GEN5, ROW("03", "0", LINKS) NIC("04") "/>"));
    struct arena *a = arena_new();
    const char *said;
    const struct topo_node_type *type = node(a, "H100-SXM", 2, UP ONE_NIC, dump, &said);
    CU_ASSERT_PTR_NOT_NULL_FATAL(type);
    CU_ASSERT(near(type->detail->gpu_nic_bytes_s[0], 48e9) && type->detail->gpu_nic_bytes_s[1] == 0);
    CU_ASSERT(near(type->detail->nvlink_bytes_s, 18 * 20.6e9) && !*said);
    arena_free(a);
}

/* several hosts in one file are one NVLink domain; the first gives the detail */
static void test_hosts(void)
{
    static const struct {
        const char *span, *says;
    } cases[] = {{"span='2'", ""}, {"", "the dump shows an NVLink domain of 2 hosts, but span is 1"}};
    static const char dump[] =
        HOST("0x1", ROW("01", "0", LINKS) NIC("02") "/>") HOST("0x2", ROW("01", "0", LINKS) NIC("02") "/>");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said;
        const char *with =
            arena_printf(a, "<scale-up kind='nvswitch' bandwidth='450GB/s' %s/>" ONE_NIC, cases[i].span);
        const struct topo_node_type *type = node(a, "H100-SXM", 1, with, dump, &said);
        CU_ASSERT_EQUAL(type != NULL, !*cases[i].says);
        CU_ASSERT_PTR_NOT_NULL(strstr(said, cases[i].says));
        if (type)
            CU_ASSERT(type->detail->ngpus == 1 && type->detail->nnics == 1 && type->detail->nnuma == 1);
        arena_free(a);
    }
}

/* 256 devices of a dump are read; the first of more is refused, once, whatever and wherever it is */
static void test_many_devices(void)
{
    static const struct {
        const char *before, *device, *after, *behind;
    } cases[] = {
        {CPU_OPEN, GPU("02") "/>", "</cpu>", CPU(GPU("02") "/>")},
        {CPU_OPEN, NIC("03") "/>", "</cpu>", CPU(NIC("03") "/>")},
        {CPU_OPEN PCI("01", "0x060400", GEN5) ">", GPU("02") "/>", "</pci></cpu>", CPU(GPU("02") "/>")},
        {CPU_OPEN NIC("03") "><nic>", "<net dev='0' speed='1'/>", "</nic></pci></cpu>", CPU(NIC("03") "/>")},
        {CPU_OPEN "<nic>", "<net dev='0' speed='1'/>", "</nic></cpu>", CPU("<nic><net dev='0'/></nic>")},
        {"", "<cpu host_hash='%u'/>", "", "<cpu host_hash='x'/>"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (unsigned over = 0; over < 2; over++) {
            struct arena *a = arena_new();
            struct strbuf dump = {0};
            const char *said, *first;
            strbuf_text(&dump, cases[i].before);
            for (unsigned k = 0; k < NCCL_DEVICES_MAX + over; k++)
                strbuf_text(&dump, arena_printf(a, cases[i].device, k));
            strbuf_printf(&dump, "%s%s", cases[i].after, over ? cases[i].behind : "");
            bool taken = node(a, "H100-SXM", 1, "", dump.text, &said) != NULL;
            first = strstr(said, "more than 256 "); /* other errors may remain: the machine has one GPU */
            CU_ASSERT(over ? !taken && first && !strstr(first + 1, "error: ") : !first);
            strbuf_free(&dump);
            arena_free(a);
        }
}

/* contradictions and oddities that are only worth a warning */
static void test_warnings(void)
{
    static const struct {
        const char *model, *with, *below_cpu, *says; /* says: NULL = nothing at all */
    } cases[] = {
        {"A100-SXM", "", PCI("01", "0x030200", "") " vendor='0x10de' device='0x2330'/>",
         "the GPUs in the dump are H100-SXM (device 0x2330), not A100-SXM"},
        {"A100-SXM", "", PCI("01", "0x030200", "") " vendor='0x10de' device='0x20b0'/>",
         "the GPUs in the dump are A100-SXM-40GB"},
        {"A100-SXM-40GB", "", PCI("01", "0x030200", "") " vendor='0x10de' device='0x20b0'/>", NULL},
        {"A100-SXM", "", ROW("01", "0", ""), "the GPUs in the dump have sm 90, but A100-SXM has 80"},
        {"H100-SXM", "<scale-up kind='nvswitch' bandwidth='900GB/s'/>", ROW("01", "0", LINKS),
         "18 NVLinks per GPU give about 371GB/s, but <scale-up> says 900GB/s"},
        {"H100-SXM", "<scale-up kind='none'/>", ROW("01", "0", LINKS),
         "the dump lists NVLink, but <scale-up> has kind=\"none\""},
        {"H100-SXM", "", "<pci busid='a' class='0x060400'><pcie/></pci>", "NCCL ignores <pcie> in <pci>"},
        {"H100-SXM", "", "<gpu dev='0'/>", "NCCL ignores <gpu> in <cpu>"},
        {"H100-SXM", "", ROW("01", "0", "<nvlink target='1,2,3' nlinks='4'/>"),
         "NCCL ignores the attribute 'nlinks' of <nvlink>"},
        {"H100-SXM", "", "", "the dump lists neither GPUs nor NICs"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said, *dump = arena_printf(a, CPU("%s"), cases[i].below_cpu);
        CU_ASSERT_PTR_NOT_NULL(node(a, cases[i].model, 1, cases[i].with, dump, &said));
        CU_ASSERT(cases[i].says ? strstr(said, cases[i].says) != NULL : !*said);
        arena_free(a);
    }
}

/* The devices that dumps name, by their public PCI ids (vendor 10de). */
static void test_devices(void)
{
    static const struct {
        const char *id, *model;
    } cases[] = {{"0x1db1", "V100"},          {"0x1db5", "V100"},           {"0x20b0", "A100-SXM-40GB"},
                 {"0x20b2", "A100-SXM-80GB"}, {"0x20b5", "A100-PCIe-80GB"}, {"0x2330", "H100-SXM"},
                 {"0x2331", "H100-PCIe"},     {"0x2335", "H200-SXM"}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        const char *said,
            *dump =
                arena_printf(a, CPU(PCI("01", "0x030200", "") " vendor='0x10de' device='%s'/>"), cases[i].id);
        CU_ASSERT_PTR_NOT_NULL(node(a, "L40S", 1, "", dump, &said));
        const char *want =
            arena_printf(a, "the GPUs in the dump are %s (device %s), not L40S", cases[i].model, cases[i].id);
        CU_ASSERT_PTR_NOT_NULL(strstr(said, want));
        arena_free(a);
    }
}

/* Several NICs of one dump, of one speed or not, where the file names none: as many, of the mean speed, so
 * that the sum is the dump's. */
static void test_nics_of_dump(void)
{
    static const char dump[] = CPU("<nic>" NET("0", "200000", "1", "0xa") NET("1", "400000", "1", "0xb")
                                       NET("2", "600000", "1", "0xc") "</nic>");
    struct arena *a = arena_new();
    const char *said;
    const struct topo_node_type *type = node(a, "H100-SXM", 2, "", dump, &said);
    CU_ASSERT_PTR_NOT_NULL_FATAL(type);
    CU_ASSERT_EQUAL_FATAL(type->nnics, 1);
    CU_ASSERT(type->nics[0].count == 3 && near(type->nics[0].bytes_s, 50e9) && type->nics[0].gdr);
    CU_ASSERT(near(type->nic_bytes_s_per_gpu, 75e9));
    arena_free(a);
}

/* a GPU that the catalogue does not know, and no <scale-up>: the dump says how it is joined, if it is */
static struct topo_scale_up joined_by(const char *links)
{
    static const char form[] =
        "<cluster version='1'><node-type id='x' gpus='1'><gpu model='own' memory='8GiB'><peak dtype='fp32' "
        "rate='1TFLOP/s'/></gpu><system version='1'><cpu numaid='0'>" GPU("01") "><gpu dev='0' sm='90' rank='0'>%s"
        "</gpu></pci></cpu></system></node-type><nodes type='x' count='1'/></cluster>";
    struct arena *a = arena_new();
    char *text = arena_printf(a, form, links);
    struct source s = {.name = "c.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, diag_new(a), &s, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    struct topo_scale_up up = t->types[0].scale_up;
    arena_free(a);
    return up;
}

static void test_unknown_gpu(void)
{
    struct topo_scale_up up = joined_by(LINKS), none = joined_by("");
    struct topo_scale_up mesh = joined_by("<nvlink target='0000:02:00.0' count='4' tclass='0x030200'/>");
    CU_ASSERT(up.kind == SCALE_UP_NVSWITCH && near(up.bytes_s, 18 * 20.6e9));
    CU_ASSERT(mesh.kind == SCALE_UP_MESH && near(mesh.bytes_s, 4 * 20.6e9)); /* from GPU to GPU, without a switch */
    CU_ASSERT(none.kind == SCALE_UP_NONE && none.bytes_s == 0);
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
    static const char form[] =
        "<cluster version='1'><node-type id='x' gpus='8'><gpu model='%s'/>"
        "<nic count='%u' bandwidth='%uGb/s'/><topology format='nccl' href='%s'/></node-type>"
        "<nodes type='x' count='1'/></cluster>";
    const char *folder = getenv("LLMC_DUMPS");
    if (!folder)
        test_skip("LLMC_DUMPS names no folder with the dumps of public machines");
    for (size_t i = 0; folder && i < ARRAY_LEN(cases); i++) {
        struct arena *a = arena_new();
        struct diag *d = diag_new(a);
        char *text = arena_printf(a, form, cases[i].model, cases[i].nics, cases[i].gb_s, cases[i].file);
        struct source s = {.name = "c.xml", .text = text, .size = strlen(text)};
        struct topo *t = topo_parse(a, d, &s, arena_printf(a, "%s/", folder));
        diag_print(d, stdout, false);
        CU_ASSERT_PTR_NOT_NULL_FATAL(t);
        const struct topo_detail *detail = t->types[0].detail;
        CU_ASSERT(detail->ngpus == 8 && detail->nnics == cases[i].nics);
        CU_ASSERT(near(detail->nvlink_bytes_s, cases[i].nvlink_bytes_s));
        CU_ASSERT(near(detail->gpu_nic_bytes_s[0], cases[i].path_bytes_s));
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
    CU_add_test(s, "devices without end", test_many_devices);
    CU_add_test(s, "warnings", test_warnings);
    CU_add_test(s, "devices by their ids", test_devices);
    CU_add_test(s, "NICs that only the dump names", test_nics_of_dump);
    CU_add_test(s, "scale-up from the dump", test_unknown_gpu);
    CU_add_test(s, "public dumps", test_real);
}
