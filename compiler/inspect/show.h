#ifndef LLMC_SHOW_H
#define LLMC_SHOW_H

/* `llmc show`: a plan for people, or the same as JSON.  Every view needs plan->timeline and prints the figures of
 * plan.json.  Views write to `out` only; what they allocate is freed when they return.
 *
 * rank or stage choose one role; without either, views of all roles show all, and --code shows role 0. */

#include "compiler/emit/plan.h"

struct show_options {
    bool json;
    bool comm;  /* timeline: a lane per communication queue; a chosen role always has them */
    bool brief; /* memory as JSON: without live bytes over time */
    bool colour, unicode;
    uint32_t width;      /* columns */
    double from_s, to_s; /* timeline: the part to draw, from the step's begin; to 0: its end */
    double zoom;         /* timeline: at most this fraction of the step, 1 / zoom */
    int64_t rank, stage; /* -1 = not chosen */
};

/* Options that the stream and the environment allow: colour on a terminal that is not dumb and without NO_COLOR;
 * Unicode in a UTF-8 locale unless TERM is dumb; the terminal's width, else COLUMNS, else 100.  No role is chosen,
 * and json is false. */
struct show_options show_detect(FILE *out);

/* Sets *role to the chosen role, NONE if none is chosen.  false, with a sentence in *why, if rank or stage do not
 * exist. */
bool show_role(struct arena *a, const struct plan *p, const struct show_options *o, uint32_t *role, const char **why);

void show_summary(const struct plan *p, FILE *out, const struct show_options *o);
void show_memory(const struct plan *p, FILE *out, const struct show_options *o);   /* memory.c */
void show_traffic(const struct plan *p, FILE *out, const struct show_options *o);  /* traffic.c */
void show_schedule(const struct plan *p, FILE *out, const struct show_options *o); /* show_schedule.c */
void show_code(const struct plan *p, FILE *out, const struct show_options *o);     /* show_schedule.c */
void show_timeline(const struct plan *p, FILE *out, const struct show_options *o); /* timeline.c */

/* --- shared by the views --- */

/* "405.9B parameters, 126 layers; 2,048 sequences of 8,192 tokens per step, bf16" */
const char *show_job(struct arena *a, const struct job *job);

/* prints the memory of one role itemised, in so many columns; NONE: of the fullest */
void show_memory_bill(const struct plan *p, FILE *out, uint32_t role, uint32_t width);
/* What the summary's lines of memory are: "parameters", "gradients", "ring act.s0, 16 deep". */
void show_memory_class(const struct program *p, const struct buffer *b, char *out, size_t size);
/* the first rank of a role, whose other coordinates are all 0 */
uint32_t show_first_rank(const struct plan *p, uint32_t role);
/* by the tags of its program: which of the decision's stages a role runs */
bool *show_stages(struct arena *a, const struct plan *p, uint32_t role);
/* "E 0-7", "24-31 L": the layers of a role's stages, joined by " + " */
char *show_layers(struct arena *a, const struct plan *p, uint32_t role);

/* Consecutive compute instructions with the same tag; gaps between them belong to the block. */
struct show_block {
    char other; /* of an overlapped pair: the action whose instructions alternate with this one's; else 0 */
    uint32_t other_stage, other_microbatch;
    char action;
    uint32_t stage, microbatch; /* NONE = none */
    int64_t start_ns, end_ns;
    uint32_t first, last; /* instructions */
};
struct show_block *show_blocks(struct arena *a, const struct program *p, const struct sim_role *r, uint32_t *nblocks);
/* "F3", "O" */
char *show_block_name(struct arena *a, const struct show_block *b);

#endif
