#ifndef LLMC_VERDICT_H
#define LLMC_VERDICT_H

/* `llmc check`: a verdict for people, and as {schema, holds, certificate, instructions, ranks, violations: [{property,
 * role, rank, evaluation, instruction, message}], origin: {holds, compiler, files, differences: [{file, key, role,
 * evaluation, instruction, message}]}}; role, rank, instruction, file and key are null where there is none.  `holds` is
 * that all of it does. */

#include "compiler/verify/verify.h"

/* where a folder is not what its inputs give (compiler/origin/) */
struct difference {
    const char *file, *key; /* of the folder; of plan.json; or NULL */
    uint32_t role, instruction;
    bool evaluation; /* in the evaluation program */
    const char *message;
};
struct origin {
    const char *version; /* of the compiler that derived it again */
    uint32_t nfiles;     /* equal to the byte */
    uint32_t ndifferences;
    struct difference *differences;
};

/* o may be NULL: not looked at */
void verdict_print(const struct verdict *v, const struct origin *o, FILE *out);
void verdict_json(const struct verdict *v, const struct origin *o, FILE *out);
void origin_print(const struct origin *o, FILE *out);
struct strbuf; /* the member `origin`, with a comma before it */
void origin_json(const struct origin *o, struct strbuf *b);

#endif
