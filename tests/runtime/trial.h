#ifndef LLMC_TESTS_TRIAL_H
#define LLMC_TESTS_TRIAL_H

/* A compiled plan trained for a few steps inside of the tests: on CPU ranks, or on the fake device by either transport.
 * All begin with equal weights and see equal data, and results are compared bit by bit. */

#include "compiler/llmc.h"
#include "tests/fake/fake_nccl.h"

enum { TRIAL_STEPS = 3, TRIAL_RANKS = 64 };
enum trial_kind { TRIAL_CPU, TRIAL_D2D, TRIAL_NCCL };

struct trial {
    const struct plan *plan;
    enum trial_kind kind;
    enum replay replay;
    struct fake_setup cuda;
    struct fake_nccl_setup nccl;
    double watchdog_s;
    bool trace;
    const struct meet_ops *meet;           /* instead of the transport's; or NULL */
    void (*look)(const struct gang *gang); /* by the first rank after the last step, with d2d; or NULL */
    /* results */
    enum status status;
    char error[2048];      /* the run's one report */
    char complaints[1024]; /* of the fakes, of all processes the first */
    double loss[TRIAL_STEPS], norm[TRIAL_STEPS]; /* of rank 0 */
    uint64_t weights; /* hash of all ranks' persistent buffers at the end */
    uint64_t graphs, launches;
    uint32_t backwards; /* spans of the trace that end before they begin, or begin before what they wait for ends */
};
void trial_run(struct trial *t);
/* both ran and agree in every bit */
bool trial_equal(const struct trial *a, const struct trial *b);

#endif
