#ifndef LLMC_PLANNED_H
#define LLMC_PLANNED_H

/* What a plan's plan.json predicts of a step, for --watch to compare with.  It is the compiler that writes it
 * (plan_waiting_json()); what it does not say is not known here, and no error. */

#include <stdint.h>

enum { PLANNED_FOR = 4 };
struct planned_role { /* shares of the step */
    double waits, transfers;
    uint32_t n;
    struct {
        uint32_t role;
        double share;
    } most[PLANNED_FOR]; /* the other roles that it waits for, the longest first */
};
struct planned {
    double step_s, mfu; /* 0: not known */
    uint32_t nroles;    /* 0: waits are not known */
    struct planned_role *roles;
};

/* json: NULL, or the text of plan.json.  A plan with another number of roles says nothing of waits. */
void planned_read(struct planned *p, const char *json, uint32_t nroles);
void planned_free(struct planned *p);
/* of a role's step, what it waits for another one; NAN: not known */
double planned_for(const struct planned *p, uint32_t role, uint32_t whom);

#endif
