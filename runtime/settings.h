#ifndef LLMC_SETTINGS_H
#define LLMC_SETTINGS_H

/* llmrun's command line. */

#include "runtime/saver.h"
#include "runtime/status.h"

#include <stdbool.h>
#include <stdint.h>

struct settings {
    const char *dir, *transition,
        *then; /* the plan; a transition and the plan that follows after `at` steps, or NULL */
    uint64_t at;
    const char *data, *init, *save, *eval, *log, *trace, *gradients, *paced;
    const char *routing[4];        /* by enum routing_use; at most one */
    struct saver_rules checkpoint; /* dir NULL = none are taken */
    bool resume;
    bool stop_on_spike;      /* --on-spike stop */
    uint64_t replicas_every; /* steps after which replicas are compared; 0 = only where a checkpoint is taken */
    uint64_t flip[2];        /* --flip-bit: a rank, and after which of its steps; 0 = after none */
    uint64_t slow_rank;      /* --slow-rank: a rank, and how many times as long its kernels take; 0 = none */
    double slow_by;
    uint64_t restarts;      /* after failures, at most */
    bool goodput;           /* print where the time went */
    const char *rendezvous; /* host:port of rank 0 */
    uint64_t rank, ranks;   /* with --rendezvous: this rank of so many; 0 = taken from the launcher */
    uint64_t steps;         /* 0 = the job's own length */
    uint64_t eval_every;    /* 0 = only at the end */
    uint64_t shuffle_seed;
    double watchdog_s;
    bool json, quiet, watch, local_ranks;
    /* --generate: the prompt; how many tokens; how they are chosen, see generate.h */
    const char *generate;
    uint64_t tokens, top_k, seed;
    double temperature;
    const char *sampling; /* the last one of its options that was given, or NULL */
    bool calibrate;
    const char *output;          /* of --calibrate; NULL = stdout */
    bool cuda, nccl, free_order; /* --device cuda; --transport nccl rather than d2d; --no-deterministic */
    bool mpi;                    /* --transport mpi */
    int transport, replay;       /* as given, -1 = not given; replay: enum replay of runtime/cuda/gang.h */
};

/* STATUS_OK with *done set if --help or --version was handled; otherwise a complete, consistent set of options.  On
 * an error it has printed one sentence. */
enum status settings_parse(struct settings *o, int argc, char **argv, bool *done);

#endif
