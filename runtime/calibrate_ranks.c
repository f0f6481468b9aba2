/* The cluster file around the measurements: one node, its ranks, the cores that they share, and their memory.
 *
 * A rank's memory is its share of nine tenths of what the machine, or the control group this process lives in, can
 * still give; RESERVE of it are for libraries and stacks (llmrun --json prints what they take: 30 to 50 MiB). */

#include "runtime/calibrate_ranks.h"
#include "runtime/player.h"
#include "runtime/memory.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RESERVE_MIB = 64, LEAST_MIB = 128 };

static uint64_t memory_mib(uint32_t ranks)
{
    uint64_t have = memory_available();
    if (have == UINT64_MAX)
        have = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t mib = have / 10 * 9 / ranks >> 20;
    return mib > LEAST_MIB ? mib : LEAST_MIB;
}

static void print_cluster(const struct calibrate_machine *m, const char *date, const char *measured, FILE *out)
{
    char name[300];
    player_cpu.describe(NULL, name, sizeof name);
    fprintf(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<!-- This machine as llmrun measured it on %s: %u ranks that share %u cores.\n"
        "     %s.\n"
        "     Kernels: seconds on a core while all cores are busy.  Collectives: seconds on cores of all ranks of a group, over\n"
        "     as many cores as they can use at once, so of one group alone.  memory-bandwidth: so that llmc's rule for kernels without\n"
        "     a measurement meets the mean of those with one. -->\n"
        "<cluster version=\"1\" name=\"this-machine\">\n"
        "  <node-type id=\"machine\" gpus=\"%u\" cores=\"%u\" host-bandwidth=\"%.4gGB/s\">\n"
        "    <gpu model=\"cpu\" memory=\"%lluMiB\" reserve=\"%dMiB\" memory-bandwidth=\"%.4gGB/s\">\n",
        date, m->ranks, m->cores, name, m->ranks, m->cores, m->send_bytes_s * 1e-9,
        (unsigned long long)memory_mib(m->ranks), RESERVE_MIB,
        m->stream_bytes_s / 0.85 * 1e-9); /* llmc reaches 0.85 of what a file says */
    for (int i = 0; i < 2; i++)
        fprintf(out, "      <peak dtype=\"%s\" rate=\"%.6gGFLOP/s\" efficiency=\"1\"/>\n", i ? "bf16" : "fp32",
                m->peak_flop_s[i] * 1e-9);
    fprintf(out,
            "    </gpu>\n    <scale-up kind=\"none\"/>\n  </node-type>\n  <nodes type=\"machine\" count=\"1\"/>\n"
            "  <measured date=\"%s\">\n%s  </measured>\n</cluster>\n",
            date, measured);
}

enum status calibrate_ranks(uint32_t ranks, FILE *out, struct error *error)
{
    cpu_set_t may;
    CPU_ZERO(&may);
    int cores = sched_getaffinity(0, sizeof may, &may) ? 1 : CPU_COUNT(&may); /* that this process may use */
    struct calibrate_machine m = {.cores = cores > 0 ? (uint32_t)cores : 1};
    char *measured = NULL, date[16];
    size_t size = 0;
    time_t now = time(NULL);
    struct tm day;
    m.ranks = ranks ? ranks : m.cores;
    if (m.ranks > CALIBRATE_MOST_RANKS)
        return error_set(error, STATUS_USAGE, "--world %u: a node of a cluster file has at most %d ranks", m.ranks,
                         CALIBRATE_MOST_RANKS);
    FILE *f = open_memstream(&measured, &size);
    if (!f)
        return error_set(error, STATUS_WORLD, "out of memory");
    enum status st = calibrate_kernels(&m, f, error);
    if (st == STATUS_OK)
        st = calibrate_meetings(&m, f, error);
    fclose(f);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime_r(&now, &day));
    if (st == STATUS_OK)
        print_cluster(&m, date, measured, out);
    free(measured);
    return st;
}
