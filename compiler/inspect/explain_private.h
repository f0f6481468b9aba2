#ifndef LLMC_EXPLAIN_PRIVATE_H
#define LLMC_EXPLAIN_PRIVATE_H

/* Between the files of explain: what is found out (explain.c, _shift.c, _change.c) and printed (_text.c,
 * _json.c). */

#include "compiler/inspect/explain.h"
#include "compiler/inspect/explain_items.h"
#include "compiler/support/vec.h"

/* a plan that differs from the chosen one in one dimension */
struct explain_other {
    const char *dimension, *what; /* "tp"; "tp 4, no sp": what follows included */
    double slower;                /* by the objective, as a fraction */
    bool wished;                  /* the plan block forbids it */
    struct candidate candidate;
    bool fits, compiled; /* compiled: its step and bytes, and `slower`, are of programs, not estimated */
    const char *why;     /* where it does not fit */
};

/* the chosen plan where one figure of the cluster is different */
struct explain_shift {
    const char *key, *what; /* "nic", "NIC bandwidth" */
    double less, more; /* change of the step time, as a fraction, at -10 % and +10 %; more NAN = less alone */
    const char *choice; /* the plan that would be chosen instead, or NULL */
    double gain;        /* and by how much it is faster then */
    const char *note;   /* of the cluster, or NULL */
};

/* a changed request; price: the best plan of it */
struct explain_change {
    const char *what; /* "drop 'tp = 16'" */
    const char *how;  /* what the plan looks like then */
    bool bigger;      /* needs more or other GPUs */
    struct candidate candidate;
};

struct explanation {
    struct arena *arena;
    struct job *job;
    struct topo *topo;
    const struct plan *plan; /* or NULL */
    const struct search_result *found;
    struct candidate chosen; /* with the search's estimate, which all others are compared by */
    struct estimate shown;   /* the compiled plan's, or the same */
    const struct cost *cost;
    uint64_t memory_limit_bytes, budget;
    bool emit_only, all;
    uint32_t rank; /* of the plan folder's decision among the search's, from 0; UINT32_MAX = not among them */
    const char *reason; /* why nothing was found, or NULL */
    VEC(struct explain_other) others;
    VEC(struct explain_shift) shifts;
    VEC(struct explain_change) changes;
    bool has_jitter;
    double jitter_share, jitter_mean,
        jitter_slowest; /* change of the step time, of one replica and of the slowest */
    bool has_left_out;
    struct candidate
        left_out; /* best plan regardless of what can be emitted, or best that can, whichever isn't chosen */
};

/* explain_shift.c: the chosen plan on a slightly different cluster */
void explain_shifts(struct explanation *x);
void explain_jitter(struct explanation *x);
/* explain_change.c: more or fewer nodes; what would make an impossible request possible */
void explain_nodes(struct explanation *x);
void explain_rescue(struct explanation *x);

/* all of it, for x's job, topo, plan and budget; false: no plan fits, and what would change that is in it */
bool explain_find(struct explanation *x, struct diag *d);
void explain_text(const struct explanation *x, bool all, FILE *out);
void explain_json(const struct explanation *x, FILE *out);

#endif
