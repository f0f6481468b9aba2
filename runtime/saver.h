#ifndef LLMC_SAVER_H
#define LLMC_SAVER_H

/* Taking checkpoints while a run goes on.  Between two steps every rank copies what it answers for into memory of its
 * own; a thread then writes it, while the next steps run.  The ranks of one machine write into the same files, through
 * mappings; the last thing is rank 0's: it flushes, names the generation, and removes old ones by rule.  Ranks that
 * share no memory write between steps, without a thread.
 *
 * A save that fails (a full disk, say) is said once, leaves nothing behind, and does not end the run; the next one
 * starts from nothing.  While one is still being written, a save that is due by time is left out, and one that is due
 * by its step waits. */

#include "runtime/checkpoint.h"
#include "runtime/world.h"

/* What a plan's checkpoints contain: all its tensors, by state. */
struct saver_catalogs {
    struct weight_plan *list[NSTATES];
    uint32_t n[NSTATES];
    uint64_t nvalues; /* 64-bit words that all ranks share in world.coverage, behind the first `base` */
    size_t base;
};
enum status saver_catalogs(const struct program *const *programs, uint32_t nroles, size_t base,
                           struct saver_catalogs *out, struct error *error);
void saver_catalogs_free(struct saver_catalogs *c);

/* when, and how many are kept */
struct saver_rules {
    const char *dir;
    uint64_t every_steps; /* 0 = not by steps */
    double every_s;       /* 0 = not by time */
    double patience_s; /* until a rank whose process stands still while others wait for it ends the run; 0 = for ever */
    uint64_t keep;     /* the newest so many; 0 = all */
    uint64_t keep_every; /* and for good those whose step is a multiple of this; 0 = none */
};

struct saver;
/* One rank's.  first: steps that were taken before this run; last: its length. */
enum status saver_open(struct saver **out, struct world *w, const struct weights_place *place,
                       const struct saver_catalogs *c, const struct saver_rules *rules, uint64_t first, uint64_t last,
                       struct error *error);
void saver_close(struct saver *s); /* waits for a save that is being written */

/* Before the step that follows `taken` steps: all ranks agree on whether the step after it ends with a checkpoint, or
 * with the end of the run, because a signal asked for it. */
enum status saver_agree(struct saver *s, uint64_t taken);
/* Do `taken` steps end with a checkpoint; with the end of the run? */
bool saver_is_due(const struct saver *s, uint64_t taken);
bool saver_stops(const struct saver *s, uint64_t taken);

/* Takes a checkpoint, of which c says everything but weights and moments.  wait: and returns when it is written; false:
 * it could not be, for the reason that has been printed. */
bool saver_take(struct saver *s, const struct checkpoint *c, bool wait);
/* seconds that steps had to wait for checkpoints in all; how many were written, left out, and failed */
struct saver_figures {
    double stall_s;
    uint64_t written, left_out, failed;
};
struct saver_figures saver_figures(const struct saver *s);

#endif
