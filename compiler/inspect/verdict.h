#ifndef LLMC_VERDICT_H
#define LLMC_VERDICT_H

/* `llmc check`: a verdict for people, and as JSON: {schema, holds, certificate, instructions, ranks, violations:
 * [{property, role, rank, evaluation, instruction, message}], origin: {holds, compiler, files, differences: [{file,
 * key, role, evaluation, instruction, message}]}}; role, rank, instruction, file and key are null where there is
 * none.  The outer `holds` is true if both the proofs and the origin hold. */

#include "compiler/verify/verify.h"

/* a place where a folder differs from what its inputs give (compiler/origin/) */
struct difference {
    const char *file, *key; /* file of the folder; key of plan.json; or NULL */
    uint32_t role, instruction;
    bool evaluation; /* in the evaluation program */
    const char *message;
};
struct origin {
    const char *version; /* version of the compiler that derived the plan again */
    uint32_t nfiles;     /* files that are equal byte for byte */
    uint32_t ndifferences;
    struct difference *differences;
};

/* o: NULL if the origin was not checked */
void verdict_print(const struct verdict *v, const struct origin *o, FILE *out);
void verdict_json(const struct verdict *v, const struct origin *o, FILE *out);
void origin_print(const struct origin *o, FILE *out);
struct strbuf; /* the member `origin`, with a comma before it */
void origin_json(const struct origin *o, struct strbuf *b);

#endif
