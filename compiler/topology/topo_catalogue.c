/* The catalogue of accelerators.
 *
 * Memory is what the driver reports to programs, which is less than the number on the box.  Peaks are dense:
 * the data-sheets of NVIDIA and AMD print twice as much "with sparsity".  Scale-up is the data-sheet's figure
 * for both directions together; the compiler halves it.  The reserve is what a process loses before it
 * allocates anything: about 0.5 GiB for the CUDA context and modules and 0.5 to 0.7 GiB for NCCL's first
 * communicator with its channel buffers, rounded up to 2 GiB for the further communicators of a
 * mixed-parallel job.
 *
 * Sources: public data-sheets and architecture papers of the vendors, named per row, read in 2025 and 2026.
 */

#include "compiler/topology/topo_catalogue.h"

#include "compiler/topology/topo_rules.h"

#include "compiler/support/units.h"
#include "compiler/support/vec.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define GIB(n) ((uint64_t)((n)*1073741824.0))
#define RESERVE GIB(2.0)

/* clang-format off */
/* memory in bytes, bandwidths in GB/s, peaks in TFLOP/s dense: fp32 (not on tensor cores), tf32, bf16, fp16, fp8, fp4 */
#define GPU(name, sm_, memory, reserve, memory_gb_s, fp32, tf32, bf16, fp16, fp8, fp4, kind, both_gb_s, from) \
    {{name, true, memory, reserve, (memory_gb_s) * 1e9,                                                       \
      {(fp32) * 1e12, (tf32) * 1e12, (bf16) * 1e12, (fp16) * 1e12, (fp8) * 1e12, (fp4) * 1e12}, {0}, sm_, 0}, \
     kind, (both_gb_s) * 1e9, from}

#define SW SCALE_UP_NVSWITCH
#define ME SCALE_UP_MESH
#define NO SCALE_UP_NONE

static const struct topo_catalogue_gpu catalogue[] = {
    /*  model               sm memory      reserve  GB/s  fp32  tf32   bf16   fp16   fp8    fp4    scale-up GB/s both */
    GPU("V100",             70, GIB(31.7), RESERVE,  900, 15.7, 0,     0,     125,   0,     0,     ME, 300,
        "Tesla V100 data-sheet 2020, SXM2 32 GB"),
    GPU("A100-SXM",         80, GIB(79.3), RESERVE, 2039, 19.5, 156,   312,   312,   0,     0,     SW, 600,
        "A100 data-sheet 2021, SXM 80 GB"),
    GPU("A100-SXM-80GB",    80, GIB(79.3), RESERVE, 2039, 19.5, 156,   312,   312,   0,     0,     SW, 600,
        "A100 data-sheet 2021, SXM 80 GB"),
    GPU("A100-SXM-40GB",    80, GIB(39.5), RESERVE, 1555, 19.5, 156,   312,   312,   0,     0,     SW, 600,
        "A100 data-sheet 2020, SXM 40 GB"),
    GPU("A100-PCIe-80GB",   80, GIB(79.3), RESERVE, 1935, 19.5, 156,   312,   312,   0,     0,     NO, 600,
        "A100 data-sheet 2021, PCIe 80 GB; 600 GB/s only between pairs with a bridge"),
    GPU("A800-SXM",         80, GIB(79.3), RESERVE, 2039, 19.5, 156,   312,   312,   0,     0,     SW, 400,
        "A800 data-sheet 2022: A100 with 400 GB/s NVLink"),
    GPU("H100-SXM",         90, GIB(79.6), RESERVE, 3350, 66.9, 494.7, 989.4, 989.4, 1978.9, 0,    SW, 900,
        "H100 architecture paper 2022 and data-sheet 2023, SXM5 80 GB"),
    GPU("H100-SXM-96GB-HBM2e", 90, GIB(95.0), RESERVE, 2400, 66.9, 494.7, 989.4, 989.4, 1978.9, 0, SW, 900,
        "as H100-SXM, with 96 GB of HBM2e at 2.4 TB/s as torchtitan's benchmark page of 2024 describes it"),
    GPU("H100-PCIe",        90, GIB(79.2), RESERVE, 2000, 51.2, 378,   756,   756,   1513,  0,     NO, 600,
        "H100 data-sheet 2023, PCIe 80 GB; 600 GB/s only between pairs with a bridge"),
    GPU("H200-SXM",         90, GIB(139.8), RESERVE, 4800, 66.9, 494.7, 989.4, 989.4, 1978.9, 0,   SW, 900,
        "H200 data-sheet 2024, SXM 141 GB"),
    GPU("H800-SXM",         90, GIB(79.6), RESERVE, 3350, 66.9, 494.7, 989.4, 989.4, 1978.9, 0,    SW, 400,
        "H800 data-sheet 2023: H100 with 400 GB/s NVLink (also arXiv 2505.09343)"),
    GPU("H20",              90, GIB(95.6), RESERVE, 4000, 44,   74,    148,   148,   296,   0,     SW, 900,
        "H20 data-sheet 2024, SXM 96 GB"),
    GPU("GH200",            90, GIB(94.5), RESERVE, 4000, 66.9, 494.7, 989.4, 989.4, 1978.9, 0,    NO, 900,
        "GH200 data-sheet 2024, 96 GB HBM3; NVLink only where machines of 32 are joined"),
    GPU("B200",            100, GIB(178.3), RESERVE, 7700, 75,  1125,  2250,  2250,  4500,  9000,  SW, 1800,
        "HGX B200 data-sheet 2024 and DGX B200 guide 2025, 180 GB"),
    GPU("B300",            103, GIB(267.7), RESERVE, 8000, 75,  1125,  2250,  2250,  4500,  13500, SW, 1800,
        "HGX B300 data-sheet 2025, 270 GB usable of 288"),
    GPU("GB200",           100, GIB(184.0), RESERVE, 8000, 80,  1250,  2500,  2500,  5000,  10000, SW, 1800,
        "GB200 NVL72 data-sheet 2024, 186 GB"),
    GPU("GB300",           103, GIB(276.6), RESERVE, 8000, 80,  1250,  2500,  2500,  5000,  15000, SW, 1800,
        "GB300 NVL72 data-sheet 2025, 279 GB usable of 288"),
    GPU("L40S",             89, GIB(44.4), RESERVE,  864, 91.6, 183,   362,   362,   733,   0,     NO, 0,
        "L40S data-sheet 2023, 48 GB with ECC"),
    GPU("MI300X",            0, GIB(191.9), RESERVE, 5300, 163.4, 653.7, 1307.4, 1307.4, 2614.9, 0, ME, 896,
        "MI300X data-sheet 2023, 192 GB; 7 links of 128 GB/s"),
    GPU("TPU-v5p",           0, GIB(95.0), GIB(1.0), 2765, 0,   0,     459,   0,     0,     0,     NO, 1200,
        "Cloud TPU v5p documentation 2024: 6 links of 200 GB/s both ways, described by <torus>"),
};

/* clang-format on */

/* Vendor 0x10de.  Ids as real dumps of the makers' machines show them (NCCL topology files of clouds and DGX
 * systems). */
static const struct {
    unsigned device;
    const char *model;
} devices[] = {
    {0x1db1, "V100"},           {0x1db5, "V100"},     {0x20b0, "A100-SXM-40GB"}, {0x20b2, "A100-SXM-80GB"},
    {0x20b5, "A100-PCIe-80GB"}, {0x2330, "H100-SXM"}, {0x2335, "H200-SXM"},      {0x2331, "H100-PCIe"},
    {0x3182, "B300"},           {0x31c2, "GB300"},
};

/* Names as the driver gives them (cudaGetDeviceProperties, nvidia-smi -L), without the maker's. */
static const struct {
    const char *name, *model;
} driver_names[] = {
    {"V100-SXM2-16GB", "V100"},
    {"V100-SXM2-32GB", "V100"},
    {"V100-SXM3-32GB", "V100"},
    {"A100-SXM4-40GB", "A100-SXM-40GB"},
    {"A100-SXM4-80GB", "A100-SXM-80GB"},
    {"A100 80GB PCIe", "A100-PCIe-80GB"},
    {"A800-SXM4-80GB", "A800-SXM"},
    {"H100 80GB HBM3", "H100-SXM"},
    {"H100 PCIe", "H100-PCIe"},
    {"H200", "H200-SXM"},
    {"H800", "H800-SXM"},
    {"H20", "H20"},
    {"GH200 480GB", "GH200"},
    {"GH200 120GB", "GH200"},
    {"B200", "B200"},
    {"B300", "B300"},
    {"B300 SXM6 AC", "B300"},
    {"GB200", "GB200"},
    {"GB300", "GB300"},
    {"L40S", "L40S"},
};

const struct topo_catalogue_gpu *topo_catalogue_find(const char *model)
{
    const struct topo_catalogue_gpu *short_for = NULL;
    size_t n = strlen(model), many = 0;
    for (size_t i = 0; i < ARRAY_LEN(catalogue) && n; i++) {
        const char *name = catalogue[i].gpu.model;
        if (!strcmp(name, model))
            return &catalogue[i];
        if (!strncmp(name, model, n) && name[n] == '-') {
            short_for = &catalogue[i];
            many++;
        }
    }
    return many == 1 ? short_for : NULL;
}

void topo_catalogue_print(FILE *out)
{
    fprintf(out,
            "GPUs by name: memory as the driver reports it, its bandwidth, the dense peak in bf16 (fp16 where there is "
            "none)\nand fp8, and the usual machine's links, both directions together. A name goes without what follows "
            "its '-'\nwhere only one begins so.\n\n"
            "%-22s %9s %10s %12s %12s  %-9s %9s\n",
            "gpu model", "memory", "bandwidth", "bf16", "fp8", "scale-up", "");
    for (size_t i = 0; i < ARRAY_LEN(catalogue); i++) {
        const struct topo_catalogue_gpu *x = &catalogue[i];
        double bf16 = x->gpu.peak_flop_s[TOPO_BF16], fp8 = x->gpu.peak_flop_s[TOPO_FP8];
        fprintf(out, "%-22s %9s %10s %12s %12s  %-9s %9s\n", x->gpu.model, units_show_bytes(x->gpu.memory_bytes).s,
                units_show_bytes_s(x->gpu.memory_bytes_s).s,
                units_show_flop_s(bf16 > 0 ? bf16 : x->gpu.peak_flop_s[TOPO_FP16]).s,
                fp8 > 0 ? units_show_flop_s(fp8).s : "-", topo_scale_up_words[x->scale_up],
                units_show_bytes_s(x->bidirectional_bytes_s).s);
    }
}

const char *topo_catalogue_several(struct arena *a, const char *model)
{
    const char *all = NULL;
    size_t n = strlen(model), many = 0;
    for (size_t i = 0; i < ARRAY_LEN(catalogue) && n; i++)
        if (!strncmp(catalogue[i].gpu.model, model, n) && catalogue[i].gpu.model[n] == '-') {
            all = all ? arena_printf(a, "%s, %s", all, catalogue[i].gpu.model) : catalogue[i].gpu.model;
            many++;
        }
    return many > 1 ? all : NULL;
}

const char *topo_catalogue_nearest(const char *model)
{
    const char *names[ARRAY_LEN(catalogue)];
    for (size_t i = 0; i < ARRAY_LEN(catalogue); i++)
        names[i] = catalogue[i].gpu.model;
    const char *near = diag_nearest(model, names, ARRAY_LEN(names));
    for (size_t i = 0; !near && *model && i < ARRAY_LEN(names); i++) /* H100, or H100-SXM5-80GB */
        if (!strncasecmp(names[i], model, strlen(model)) || !strncasecmp(names[i], model, strlen(names[i])))
            near = names[i];
    return near;
}

const char *topo_catalogue_device(unsigned long device)
{
    for (size_t i = 0; i < ARRAY_LEN(devices); i++)
        if (devices[i].device == device)
            return devices[i].model;
    return NULL;
}

/* Two names alike but for case, and '_' for blanks. */
static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (tolower((unsigned char)(*a == '_' ? ' ' : *a)) != tolower((unsigned char)*b))
            return false;
    return *a == *b;
}

const char *topo_catalogue_driver_name(const char *name)
{
    static const char *const makers[] = {"NVIDIA", "Tesla"};
    for (size_t i = 0; i < ARRAY_LEN(makers); i++) {
        size_t n = strlen(makers[i]);
        if (!strncasecmp(name, makers[i], n) && (name[n] == ' ' || name[n] == '_'))
            name += n + 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(driver_names); i++)
        if (same_name(name, driver_names[i].name))
            return driver_names[i].model;
    return NULL;
}

const struct topo_catalogue_gpu *topo_catalogue_begins(const char *word, uint32_t *many)
{
    const struct topo_catalogue_gpu *first = NULL;
    size_t n = strlen(word);
    *many = 0;
    for (size_t i = 0; i < ARRAY_LEN(catalogue) && n; i++) {
        const char *name = catalogue[i].gpu.model;
        if (strncasecmp(name, word, n) != 0 || (name[n] && name[n] != '-'))
            continue;
        first = first ? first : &catalogue[i];
        ++*many;
    }
    return first;
}

/* NVLink 1 to 5 (architecture papers of P100 to B200): 20, 25, 25, 25 and 50 GB/s a link and direction; GA102 has 14.
 */
double topo_catalogue_nvlink_bytes_s(const struct topo_catalogue_gpu *row)
{
    uint32_t sm = row->gpu.sm;
    return sm >= 100 ? 50e9 : sm == 86 ? 14.0625e9 : sm >= 70 ? 25e9 : 20e9;
}

uint32_t topo_catalogue_nvlinks(const struct topo_catalogue_gpu *row)
{
    return row->gpu.sm ? (uint32_t)(row->bidirectional_bytes_s / 2 / topo_catalogue_nvlink_bytes_s(row) + 0.5) : 0;
}
