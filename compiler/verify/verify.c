/* The verifier's driver.
 *
 * A plan claims that its ranks, each replaying its straight-line program on its own queues, together compute
 * one training step of the model, whatever the durations of kernels and transfers turn out to be.  The
 * verifier proves that claim from the plan alone, and trusts little: the loader's structural checks, the mesh
 * (rank <-> coordinates), the meaning of each instruction as isa.def has it (rules are tested numerically),
 * and this folder.  Nothing here shares code with what made the plan.
 *
 * What makes it decidable, and cheap, is the machine: no branches, no loops, no wildcards, nothing that
 * depends on data. Every access, match and order is in the text of the programs.
 *
 * Why roles suffice.  Ranks of one role run one program and differ in slot values only.  slots.c proves that
 * every value in ranks.bin is the formula that its declaration names.  Then
 *   - what a program does on a rank (order 3, races 4, definedness 5, memory 6) does not depend on slots, or
 * is checked over all their values at once;
 *   - a SEND of role s to pipeline rank d meets the RECV of role d from s on every rank, because the peer
 * formula only changes the pipeline coordinate and is its own inverse, so matching (2) of two roles is
 * matching of all their ranks;
 *   - a cycle of waiting ranks would project to a cycle of waiting roles, on which seq would have to grow for
 * ever;
 *   - values (7) are affine in the coordinates, so one interpretation covers all of them.
 * `full` repeats matching and order with every rank unfolded and nothing but ranks.bin's own peers and groups
 * (full.c).
 *
 * Why the properties compose.  (2) and (3) make each rendezvous happen, and happen between the right
 * instructions.  (4) then makes every execution equal to the one in program order: accesses that could be
 * reordered don't overlap, or only read.  (5), (6) and (7) reason about program order alone.  (8) says that
 * the machine of the plan exists.
 *
 * What is not proved: that kernels and transports do what the table says, that the cluster file tells the
 * truth, and rounding.  Matrix identities are those of real arithmetic: sums may be taken in any order.
 *
 * The properties build on each other, so a broken one stops those that would only repeat its consequences:
 * without structure (1) nothing can be read; without matching and order there is no valid interpretation for
 * (7).
 *
 * Cost: linear in the instructions of all roles, plus a few operations per rank.  Scratch is freed per role.
 * Interpreting values takes most of it: those of the training step, those of evaluation and the other properties are
 * proved side by side, and of a large plan so are the values of its roles (conserve_run.c).
 */

#include "compiler/verify/prove.h"

#include "compiler/support/parallel.h"

/* property 1 once more: plans in memory have not been through the loader */
static void verify_structure(struct arena *a, const struct plan *p, struct verdict *v)
{
    struct error error;
    for (uint32_t role = 0; role < p->nroles; role++)
        for (int kind = 0; kind < NPROGRAM_KINDS; kind++) {
            const struct program *q = prove_program(p, role, kind);
            struct site at = {1, role, NONE, kind == PROGRAM_EVAL, NONE};
            if (!q)
                continue;
            if (program_check(q, &error) != STATUS_OK)
                prove_report(a, p, v, at, "%s", error.text);
            else if (q->role != role || q->nroles != p->nroles || q->evaluation != (kind == PROGRAM_EVAL))
                prove_report(a, p, v, at, "its header says role %u of %u", q->role, q->nroles);
        }
    struct site all = {1, NONE, NONE, false, NONE};
    if (prove_count(v, 1))
        return;
    if (ranks_check(p->ranks, (const struct program *const *)p->train, &error) != STATUS_OK)
        prove_report(a, p, v, all, "%s", error.text);
    else if (p->ranks->nranks != p->mesh.nranks)
        prove_report(a, p, v, all, "%u ranks, the mesh has %u", p->ranks->nranks, p->mesh.nranks);
}

/* what can be estimated, but has no meaning to prove against yet */
static void verify_expressible(struct arena *a, const struct plan *p, struct verdict *v)
{
    struct site all = {7, NONE, NONE, false, NONE};
    struct span where;
    const char *what;
    if (model_unsupported(p->job, &what, &where))
        prove_report(a, p, v, all, "the reference step can't express %s", what);
}

/* ---- properties that are proved side by side ---- */

/* None reads what another has found, and only conservation's two ask for matching and order.  The longest come first.
 */
static void (*const apart[])(struct arena *a, const struct plan *p, struct verdict *v) = {
    verify_training, verify_evaluation, verify_race, verify_defined, verify_memory, verify_placement};
enum { NAPART = sizeof apart / sizeof *apart, NCONSERVE = 2 };

struct proofs {
    const struct plan *plan;
    uint32_t first; /* of `apart` */
    struct {
        struct arena *arena;
        struct verdict verdict;
    } at[NAPART];
};

static void prove_one(void *context, uint32_t i)
{
    struct proofs *x = context;
    i += x->first;
    x->at[i].arena = arena_new();
    apart[i](x->at[i].arena, x->plan, &x->at[i].verdict);
}

static void prove_apart(struct arena *a, const struct plan *p, struct verdict *v)
{
    struct proofs x = {.plan = p, .first = prove_count(v, 2) || prove_count(v, 3) ? NCONSERVE : 0};
    parallel_each(NAPART - x.first, prove_one, &x);
    for (uint32_t n = 0; n < NAPART; n++) { /* conservation last: what it reports may follow from the others */
        uint32_t i = (n + NCONSERVE) % NAPART;
        if (i < x.first)
            continue;
        for (uint32_t k = 0; k < x.at[i].verdict.nviolations; k++)
            prove_keep(a, v, &x.at[i].verdict.violations[k]);
        arena_free(x.at[i].arena);
    }
}

struct verdict *verify_plan(struct arena *a, const struct plan *p, bool full)
{
    struct verdict *v = ARENA_NEW(a, struct verdict);
    verify_structure(a, p, v);
    if (v->nviolations)
        return v;
    verify_expressible(a, p, v);
    verify_job_tables(a, p, v);
    verify_precision(a, p, v);
    verify_match(a, p, full, v);
    verify_order(a, p, full, v);
    verify_skew(a, p, v);
    prove_apart(a, p, v);
    for (uint32_t role = 0; role < p->nroles; role++)
        for (int kind = 0; kind < NPROGRAM_KINDS; kind++)
            v->checked_insns += prove_program(p, role, kind) ? prove_program(p, role, kind)->ninsns : 0;
    v->checked_ranks = p->ranks->nranks;
    return v;
}
