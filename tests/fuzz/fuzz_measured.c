/* Tables of nccl-tests, which a cluster file names: whatever the bytes are, reading ends with a curve of increasing
 * sizes or with an error.  By the first byte the table is of another operation and another number of ranks. */

#include "compiler/topology/topo.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fine)
{
    if (!fine)
        abort();
}

static char dir[64];
static FILE *table;

static void remove_place(void)
{
    fclose(table);
    file_remove_folder(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
    if (!size)
        return 0;
    if (!table) {
        char path[96];
        snprintf(dir, sizeof dir, "/dev/shm/llmc-fuzz-measured-%d", (int)getpid());
        snprintf(path, sizeof path, "%s/table.txt", dir);
        require(!mkdir(dir, 0700) && (table = fopen(path, "w")) && !atexit(remove_place));
    }
    rewind(table);
    fwrite(data + 1, 1, size - 1, table);
    require(!fflush(table) && !ftruncate(fileno(table), (off_t)size - 1));
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    char *text = arena_printf(a,
                              "<cluster version='1'><node-type id='x' gpus='8'><gpu model='H100-SXM'/>"
                              "<scale-up kind='nvswitch' bandwidth='450GB/s'/><nic count='8' bandwidth='400Gb/s'/>"
                              "</node-type><nodes type='x' count='2'/><fabric><tier name='a' span='all'/></fabric>"
                              "<measured date='2026-10-01'><collective op='%s' ranks='%u' format='nccl-tests' "
                              "href='table.txt'/></measured></cluster>",
                              kinds[data[0] % 4], 2u << (data[0] >> 2 & 3));
    struct source s = {.name = "fuzz.xml", .text = text, .size = strlen(text)};
    struct topo *t = topo_parse(a, d, &s, dir);
    require(!t == (diag_errors(d) > 0));
    for (uint32_t i = 0; t && i < t->nmeasured; i++)
        for (uint32_t k = 0; k < t->measured[i].npoints; k++) {
            const struct topo_point *p = &t->measured[i].points[k];
            require(p->bytes > 0 && p->seconds > 0 && (!k || p[-1].bytes < p->bytes));
        }
    char *out = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&out, &length);
    diag_print_json(d, f);
    if (t)
        topo_print(t, f);
    fclose(f);
    free(out);
    arena_free(a);
    return 0;
}
