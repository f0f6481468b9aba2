#ifndef LLMC_FOLDER_H
#define LLMC_FOLDER_H

/* A plan folder as the runtime needs it: hashes are checked first, then the table of ranks and every role's
 * programs. */

#include "runtime/program.h"

struct folder {
    struct ranks *ranks;
    struct program **train, **eval; /* by role; eval NULL if the plan has none */
    uint32_t nodes;                 /* number of nodes that the ranks are spread over */
    char hash[65];                  /* of MANIFEST, and so of everything */
    char *json;                     /* plan.json; NULL if there is none */
    char target[64];                /* the stack that the plan is for, by plan.json; "": not said */
};

/* STATUS_INPUT and a sentence naming the file if anything differs from MANIFEST or is malformed */
enum status folder_open(const char *dir, struct folder **out, struct error *error);
void folder_close(struct folder *f);

#endif
