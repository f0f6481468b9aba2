#ifndef LLMC_FAULTED_H
#define LLMC_FAULTED_H

/* Short runs with checkpoints, whose disks and processes fail (tests/preload/faults.c), and what they leave behind. */

#include "tests/e2e/e2e.h"

#include <stdint.h>

enum { FAULTED_STEPS = 4, FAULTED_MOST = 16 };

/* where a run is disturbed: the fields are the library's variables */
struct fault {
    int rank, kind, on; /* rank: 0 is the launching process */
    uint32_t at;        /* 0: nowhere */
    uint32_t after_us;  /* > 0: the launching process is killed after so long, and nothing else happens */
};

struct faulted {
    /* absolute, in memory where there is /dev/shm, since the disk itself is not what is tested; plan, tokens; whole/ is the
     * run that nobody disturbs, of FAULTED_STEPS */
    char dir[E2E_PATH];
    int code;           /* of the last run: exit code, 128 + signal, or -1 where it did not end */
    char err[1 << 13];  /* what it said */
    bool reached;       /* its fault occurred */
};

/* a small model's plan with these words for llmc, and its undisturbed run; NULL: printed why */
struct faulted *faulted_open(const char *name, const char *words);
void faulted_close(struct faulted *t); /* removes its folder and frees it */
/* llmrun with checkpoints in job/ck and these further options; f may be NULL; list: what it changes goes to DIR/list */
void faulted_run(struct faulted *t, const struct fault *f, bool list, const char *options);
/* job/ without anything */
void faulted_clear(const struct faulted *t);
/* The names in job/ck: generations' steps in order into `steps`, their number as the result; *other: how many other
 * names there are, reports of failures left out. */
uint32_t faulted_generations(const struct faulted *t, uint64_t steps[FAULTED_MOST], uint32_t *other);
/* does job/ck have weights and moments of this step as the undisturbed run has? */
bool faulted_same(const struct faulted *t, uint64_t step);
/* the step that checkpoint_find() finds in a folder; 0: none.  What it says is dropped. */
uint64_t faulted_find(const char *folder);

/* Messages that are expected are not printed: standard error goes nowhere until it is brought back. */
int faulted_hush(void);
void faulted_speak(int fd);
/* removes a folder and all in it */
void faulted_remove(const char *path);

#endif
