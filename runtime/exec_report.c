/* What every rank is at and whom it waits for, from the programs and the published queue heads alone: it
 * works when the others are dead, stopped or deep inside a kernel. */

#include "runtime/exec_play.h"

#include <stdlib.h>
#include <string.h>

static const char *const states[] = {"starting", "stepping", "saving", "ended"};

const struct program *exec_program_of(const struct exec *e, uint32_t rank)
{
    uint32_t eval = atomic_load(&e->s.world->ranks[rank].evaluating);
    const struct program *const *set = e->s.programs[eval ? ROUTINE_EVAL : ROUTINE_TRAIN];
    return set ? set[e->s.ranks->ranks[rank].role] : NULL;
}

/* has the rank's queue passed this instruction? */
static bool passed(const struct exec *e, uint32_t rank, const struct program *p, uint32_t insn)
{
    uint32_t head = atomic_load(&e->s.world->ranks[rank].head[p->insns[insn].queue]);
    return head == NONE || head > insn;
}

static void report_waits(const struct exec *e, uint32_t rank, const struct program *p, uint32_t i,
                         const uint32_t *position, FILE *out)
{
    const struct insn *in = &p->insns[i];
    for (uint32_t w = 0; w < in->nwaits; w++) {
        const struct wait *wait = &p->waits[in->wait + w];
        for (uint32_t j = 0; j < p->ninsns; j++)
            if (p->insns[j].queue == wait->queue && position[j] == wait->position && !passed(e, rank, p, j)) {
                fprintf(out, "      waits for its own ");
                program_print_insn(p, j, out);
                fputc('\n', out);
            }
    }
}

/* members whose queue has not come to the instruction with the same seq */
static void report_members(const struct exec *e, uint32_t rank, const struct program *p, uint32_t i, FILE *out)
{
    uint32_t self, c = channels_of(e->s.channels, e->s.ranks, rank, p, i, &self);
    const struct channel *channel = &e->s.channels->list[c];
    for (uint32_t m = 0; m < channel->nmembers; m++) {
        uint32_t other = channel->members[m];
        const struct program *q = exec_program_of(e, other);
        for (uint32_t j = 0; q && other != rank && j < q->ninsns; j++) {
            if (q->insns[j].seq != p->insns[i].seq)
                continue;
            uint32_t head = atomic_load(&e->s.world->ranks[other].head[q->insns[j].queue]);
            fprintf(out, "      meets rank %u, which %s\n", other,
                    head == j  ? "is there or waits before it"
                    : head < j ? "has not come to it"
                               : "has left it");
        }
    }
}

static void report_rank(const struct exec *e, uint32_t rank, FILE *out)
{
    struct world_rank *face = &e->s.world->ranks[rank];
    const struct program *p = exec_program_of(e, rank);
    uint32_t state = atomic_load(&face->state), running = atomic_load(&face->running), count[NQUEUES];
    fprintf(out, "rank %u: %s, step %u%s\n", rank, states[state <= RANK_ENDED ? state : RANK_ENDED],
            atomic_load(&face->step) + 1, world_trouble(e->s.world, rank));
    uint32_t *position = p ? calloc(p->ninsns + (size_t)1, sizeof *position) : NULL;
    if (!position || state != RANK_STEPPING) {
        free(position);
        return;
    }
    program_positions(p, position, count);
    for (uint32_t q = 0; q < NQUEUES; q++) {
        uint32_t i = atomic_load(&face->head[q]);
        if (i >= p->ninsns)
            continue;
        fprintf(out, "   %s %s: ", isa_queue_name((enum queue)q), running == i ? "is inside" : "is at");
        program_print_insn(p, i, out);
        fputc('\n', out);
        report_waits(e, rank, p, i, position, out);
        if (insn_is_meeting(&p->insns[i]))
            report_members(e, rank, p, i, out);
    }
    free(position);
}

void exec_report(const struct exec *e, FILE *out)
{
    const struct world *w = e->s.world;
    bool all = !w->remote || w->rank == 0; /* without shared memory ranks tell only rank 0 what they are at */
    for (uint32_t r = 0; r < w->nranks; r++)
        if (all || r == w->rank)
            report_rank(e, r, out);
}
