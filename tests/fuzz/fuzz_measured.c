/* Tables of nccl-tests, which a cluster file names: whatever the bytes are, reading ends with a curve of increasing
 * sizes or with an error.  By the first byte the table is of another operation and another number of ranks. */

#include "compiler/topology/topo.h"
#include "tests/fuzz/common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
    static int table = -1;
    if (!size)
        return 0;
    if (table < 0)
        table = fuzz_file("table.txt");
    fuzz_put(table, data + 1, size - 1);
    struct arena *a = empty_arena();
    struct diag *d = diag_new(a);
    char *text = arena_printf(
        a,
        "<cluster version='1'><node-type id='x' gpus='8'><gpu model='H100-SXM'/>"
        "<nic bandwidth='400Gb/s'/></node-type><nodes type='x' count='2'/><fabric><tier name='a' span='all'/></fabric>"
        "<measured date='2026-10-01'><collective op='%s' ranks='%u' format='nccl-tests' "
        "href='table.txt'/></measured></cluster>",
        kinds[data[0] % 4], 2u << (data[0] >> 2 & 3));
    struct source s = {.name = "fuzz.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, d, &s, fuzz_folder());
    require(!t == (diag_errors(d) > 0));
    for (uint32_t i = 0; t && i < t->nmeasured; i++)
        for (uint32_t k = 0; k < t->measured[i].npoints; k++) {
            const struct topo_point *p = &t->measured[i].points[k];
            require(p->bytes > 0 && p->seconds > 0 && (!k || p[-1].bytes < p->bytes));
        }
    diag_print_json(d, nowhere());
    if (t)
        topo_print(t, nowhere());
    return 0;
}
