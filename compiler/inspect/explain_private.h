#ifndef LLMC_EXPLAIN_PRIVATE_H
#define LLMC_EXPLAIN_PRIVATE_H

/* Shared by the files of explain: what is computed (explain.c, _shift.c, _change.c) and printed (_text.c, _json.c). */

#include "compiler/inspect/explain.h"
#include "compiler/inspect/explain_items.h"
#include "compiler/support/vec.h"

/* a plan that differs from the chosen one in one dimension */
struct explain_other {
    const char *dimension, *what; /* dimension: "tp"; what: "tp 4, no sp", with the changes that follow */
    double slower;                /* change of the objective, as a fraction */
    bool wished;                  /* the plan block forbids it */
    struct candidate candidate;
    bool fits, compiled; /* compiled: its step, bytes and `slower` are those of compiled programs, not estimates */
    const char *why;     /* why it does not fit */
};

/* the chosen plan on a cluster with one figure changed */
struct explain_shift {
    const char *key, *what; /* "nic", "NIC bandwidth" */
    /* change of the step time, as a fraction, at -10 % and +10 % of the figure; more NAN: only less was tried */
    double less, more;
    const char *choice; /* the plan that would be chosen instead, or NULL */
    double gain;        /* by how much that plan is faster on the changed cluster */
    const char *note;   /* note of the cluster on that figure, or NULL */
};

/* a changed request and the best plan for it */
struct explain_change {
    const char *what; /* "drop 'tp = 16'" */
    const char *how;  /* what the plan looks like then */
    bool bigger;      /* needs more or other GPUs */
    struct candidate candidate;
};

/* the chosen decision with a setting of its target */
struct explain_setting {
    const char *what; /* "dispatcher alltoall" */
    double slower;    /* step time / the chosen one's - 1, both by the estimate */
};

struct explanation {
    struct arena *arena;
    struct job *job;
    struct topo *topo;
    const struct plan *plan; /* or NULL */
    const struct search_result *found;
    struct candidate chosen; /* with the search's estimate, with which the others are compared */
    struct estimate shown;   /* the compiled plan's figures, or the same as chosen.estimate */
    const struct cost *cost;
    uint64_t memory_limit_bytes, budget;
    bool emit_only, all;
    /* rank of the plan folder's decision among the search's candidates, from 0; UINT32_MAX: not among them */
    uint32_t rank;
    const char *reason; /* why nothing was found, or NULL */
    VEC(struct explain_other) others;
    VEC(struct explain_shift) shifts;
    VEC(struct explain_change) changes;
    VEC(struct explain_setting) settings;
    bool has_jitter;
    double jitter_share, jitter_mean,
        jitter_slowest; /* changes of the step time: mean of one replica, and of the slowest */
    bool has_left_out;
    struct candidate
        /* the best plan regardless of what can be emitted, or the best that can be emitted, whichever was not chosen */
        left_out;
    bool has_beyond;
    struct candidate beyond; /* the best plan regardless of what the target has */
    const char *lacks;       /* what of it the target has not */
};

/* explain_shift.c: the chosen plan on slightly different clusters, and with jitter */
void explain_shifts(struct explanation *x);
void explain_jitter(struct explanation *x);
/* explain_change.c: more or fewer nodes; what would make an impossible request possible */
void explain_nodes(struct explanation *x);
/* a cluster whose types, nodes (with room for so many more), tiers and curves may be changed */
struct topo *explain_topo(struct arena *a, const struct topo *t, uint32_t more);
void explain_rescue(struct explanation *x);

/* Computes everything for x's job, topo, plan and budget; false: no plan fits, and x says what would change that. */
bool explain_find(struct explanation *x, struct diag *d);
void explain_text(const struct explanation *x, bool all, uint32_t width, FILE *out);
void explain_json(const struct explanation *x, FILE *out);

#endif
