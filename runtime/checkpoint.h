#ifndef LLMC_CHECKPOINT_H
#define LLMC_CHECKPOINT_H

/* Checkpoints belong to the job, not to a layout.  One generation is a folder DIR/step-N:
 *
 *   model.safetensors             the weights as the optimizer keeps them, whole tensors under their Hugging Face names
 *   moment1/model.safetensors     the optimizer's moments under the same names
 *   moment2/model.safetensors
 *   checkpoint.json               the step, the position in the data, the loss scale; size and hashes of every file
 *
 * (several files with an index where there is much; the index then is one of the generation's files, too).  A
 * generation is written as DIR/step-N.tmp, flushed, and renamed: what has its final name is complete, and is never
 * written again.  checkpoint.json ends with the hash of its own text.
 */

#include "runtime/error.h"
#include "runtime/isa.h"
#include "runtime/weights.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CHECKPOINT_PATH = 4400, CHECKPOINT_BLOCK = 64 << 20 /* bytes of a file that have a hash of their own */ };
extern const char *const checkpoint_folders[NSTATES]; /* of the states' files, in a generation's: "" or "moment1/" */

/* where a job is, apart from its weights and moments */
struct checkpoint {
    uint64_t step;             /* steps taken: the next one is number step, from 0 */
    uint64_t batch, sequence;  /* of a step: the next sample is step * batch */
    uint64_t samples;          /* of the data, from which samples are taken in order and again */
    uint64_t data;             /* data_hash() of them */
    uint64_t seed, steps;      /* of the initial values; length that the learning rate goes by */
    char optimizer[16];        /* the instruction that keeps the moments, ADAMW or SGD */
    double rates[2];           /* how fast either moment decays; 0 = there is none */
    char plan[65];             /* hash of the plan that wrote it */
    bool scaled;               /* has a loss scale */
    double scale[SCALE_WORDS]; /* its state */
};

/* one file of a generation */
struct checkpoint_file {
    char name[96]; /* below the generation's folder */
    uint64_t bytes;
    const uint64_t *blocks; /* XXH64 of every CHECKPOINT_BLOCK bytes */
};
static inline uint64_t checkpoint_blocks(uint64_t bytes)
{
    return (bytes + CHECKPOINT_BLOCK - 1) / CHECKPOINT_BLOCK;
}

/* Writes checkpoint.json into a generation's folder, flushed. */
enum status checkpoint_write(const char *folder, const struct checkpoint *c, const struct checkpoint_file *files,
                             uint32_t nfiles, struct error *error);

/* Takes DIR, which must be there, for this process and those that it forks, until all of them have closed *out or
 * ended: two runs would write over, and remove, each other's generations.  It is DIR/.lock that is locked, and the lock
 * ends with the processes; an error if another run has it and keeps it for a second. */
enum status checkpoint_lock(const char *dir, FILE **out, struct error *error);

/* DIR's generations, oldest first; the caller frees *steps.  A folder that is not there has none. */
enum status checkpoint_list(const char *dir, uint64_t **steps, uint32_t *n, struct error *error);
void checkpoint_path(const char *dir, uint64_t step, char out[CHECKPOINT_PATH]);

/* Finds the newest generation that is intact, to the last byte of every file that its index names; says on stderr which
 * newer ones are not.  *found false: DIR has none at all. It is an error if there are some and none is intact. */
enum status checkpoint_find(const char *dir, struct checkpoint *c, char folder[CHECKPOINT_PATH], bool *found,
                            struct error *error);

/* Removes a generation, or what is left of one that was not completed: it loses its name first. */
enum status checkpoint_remove(const char *dir, uint64_t step, bool incomplete, struct error *error);
/* Removes all that is left of generations whose writing, or removal, was cut off. */
enum status checkpoint_sweep(const char *dir, struct error *error);

#endif
