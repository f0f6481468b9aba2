/* Ranks publish the numbers of their last instructions in memory that outlives them (world.h). */

#include "runtime/flight.h"
#include "runtime/file.h"

#include <unistd.h>

uint64_t flight_step(const struct run *r)
{
    uint64_t most = 0;
    for (uint32_t i = 0; r->world.ranks && i < r->world.nranks; i++) {
        const struct world_rank *face = &r->world.ranks[i];
        uint64_t step = (uint64_t)atomic_load(&face->step) + 1;
        most = atomic_load(&face->state) != RANK_STARTING && step > most ? step : most;
    }
    return most;
}

static void print_rank(const struct run *r, uint32_t rank, FILE *out)
{
    const struct world_rank *face = &r->world.ranks[rank];
    uint32_t role = r->folder->ranks->ranks[rank].role;
    uint64_t n = atomic_load(&face->progress);
    char at[1024];
    run_describe(r, rank, at, sizeof at);
    fprintf(out, "rank %u, %llu instructions finished, %s\n", rank, (unsigned long long)n, at[0] ? at : "at its end");
    for (uint64_t k = n < WORLD_FLIGHT ? 0 : n - WORLD_FLIGHT; k < n; k++) {
        uint32_t entry = atomic_load(&face->flight[k % WORLD_FLIGHT]), insn = entry >> 1;
        const struct program *const *set = r->programs[entry & 1 ? ROUTINE_EVAL : ROUTINE_TRAIN];
        const struct program *p = set ? set[role] : NULL;
        if (!p || insn >= p->ninsns)
            continue;
        fprintf(out, "  %8llu  ", (unsigned long long)k);
        program_print_insn(p, insn, out);
        fputc('\n', out);
    }
}

/* failure-N.txt, or failure-N-2.txt and so on: a step may fail again after a restart, and no record is lost */
static void free_name(const char *dir, uint64_t step, char path[FILE_PATH])
{
    enum { MOST = 1000 };
    snprintf(path, FILE_PATH, "%.4000s/failure-%llu.txt", dir, (unsigned long long)step);
    for (int n = 2; n < MOST && access(path, F_OK) == 0; n++)
        snprintf(path, FILE_PATH, "%.4000s/failure-%llu-%d.txt", dir, (unsigned long long)step, n);
}

void flight_write(const struct run *r, const char *dir, const char *why)
{
    char path[FILE_PATH];
    struct file_out file;
    free_name(dir, flight_step(r), path);
    const char *lost = file_create(path, &file);
    if (!lost) {
        fprintf(file.stream,
                "%s\n\nthe last instructions that each rank finished, oldest first, by their number since its start\n",
                why);
        for (uint32_t rank = 0; rank < r->world.nranks; rank++)
            print_rank(r, rank, file.stream);
        lost = file_publish(&file);
    }
    fprintf(stderr, lost ? "llmrun: %s: %s\n" : "llmrun: what every rank did last is in %s\n", path, lost);
}
