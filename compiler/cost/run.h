#ifndef LLMC_RUN_H
#define LLMC_RUN_H

/* A whole run of `total` tokens: days, GPU hours, money, interruptions, and what checkpoints against them cost. */

#include "compiler/cost/cost.h"

struct strbuf;

struct whole_run {
    uint64_t steps; /* 0: the train block has no `total`, and nothing else is set */
    double tokens;
    double seconds, gpu_hours;  /* wall time, with what is lost to interruptions and checkpoints */
    double price, dollars;      /* dollars per GPU hour, and in all; 0: no price was said */
    double goodput;             /* share of the time in steps that count */
    double node_mtbf_s, mtbf_s; /* mean time between interruptions by one node, and by any; 0: not known */
    bool assumed;               /* of node_mtbf_s: the cluster file does not say it */
    double interruptions;       /* expected in the whole run */
    double restart_s;           /* from an interruption until steps are taken again */
    double checkpoint_s;        /* that a checkpoint holds the steps up */
    uint64_t every;             /* steps between checkpoints: the best number of them; 0: mtbf_s is not known */
    double every_s;             /* what they take */
};

/* Of c's decision with a step of step_s; e: its estimate, of which only the bytes of weights and optimizer are read. */
struct whole_run run_whole(const struct cost *c, const struct estimate *e, double step_s);
/* A line for people, without its end: time, GPU hours, money, goodput; and the lines behind it, which start at column
 * `indent`.  Require steps > 0. */
const char *run_text(struct arena *a, const struct whole_run *r);
const char *run_detail(struct arena *a, const struct whole_run *r, size_t indent);
/* prints the member 'run' with a comma before it, or nothing where steps is 0 */
void run_json(const struct whole_run *r, struct strbuf *out);

/* The best seconds of work between two checkpoints (Daly 2006, equation 37), and the first-order estimate (Young 1974):
 * a checkpoint takes checkpoint_s, interruptions are mtbf_s apart in the mean. */
double run_interval_s(double checkpoint_s, double mtbf_s);
double run_interval_young_s(double checkpoint_s, double mtbf_s);
/* Expected wall seconds of work_s seconds of work with a checkpoint after every interval_s of them.  INFINITY where it
 * does not get ahead. */
double run_wall_s(double work_s, double interval_s, double checkpoint_s, double restart_s, double mtbf_s);

#endif
