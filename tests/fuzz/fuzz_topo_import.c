/* Files that clusters are imported from: the first byte is the format, the rest the file.  Whatever it holds, importing
 * ends in errors, or in a cluster file that is read again. */

#include "compiler/import/cluster.h"
#include "compiler/support/vec.h"
#include "tests/fuzz/common.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sets[] = {"gpu=H100-SXM", "gpus=2",        "nics=2",  "nic=400Gb/s",
                                       "medium=roce",  "op=all_reduce", "ranks=2", "nodes=2"};
    if (!size)
        return 0;
    struct arena *a = empty_arena();
    struct diag *d = diag_new(a);
    unsigned format = data[0] % NCLUSTER_FORMATS, bare = data[0] / NCLUSTER_FORMATS;
    struct source s = {.name = "fuzz", .text = arena_strndup(a, (const char *)data + 1, size - 1), .size = size - 1};
    struct cluster_file file = {(enum cluster_format)format, &s, NULL};
    struct topo *t = NULL;
    /* Slurm's files name the nodes; without settings every format comes to what it asks for */
    size_t nsets = bare % 2 ? 0 : ARRAY_LEN(sets) - (format == CLUSTER_SLURM);
    char *text = cluster_import(a, d, &file, 1, sets, nsets, NULL, &t);
    require(!text == (diag_errors(d) > 0) && !text == !t);
    diag_print(d, nowhere(), false);
    if (t)
        topo_print(t, nowhere());
    return 0;
}
