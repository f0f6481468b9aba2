#ifndef LLMC_VERDICT_H
#define LLMC_VERDICT_H

/* `llmc check`: a verdict for people, and as {schema, holds, certificate, instructions, ranks, violations: [{property,
 * role, rank, evaluation, instruction, message}]}; rank and instruction are null where there is none. */

#include "compiler/verify/verify.h"

void verdict_print(const struct verdict *v, FILE *out);
void verdict_json(const struct verdict *v, FILE *out);

#endif
