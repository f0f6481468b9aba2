#ifndef LLMC_TESTS_FIELDS_H
#define LLMC_TESTS_FIELDS_H

/* Changes of any field of any table of a plan, one at a time, as a broken compiler, or an attacker who computes the folder's
 * hashes anew, could make them: which changes there are (fields_change.c), whether an accepted one does harm
 * (fields_judge.c). */

#include "tests/compiler/verify/mutate.h"

/* fields_slots.c: one more slot in both programs of a role, with the mesh's values in ranks.bin; the plan's programs and
 * ranks are its own.  Its index. */
uint32_t fields_add_slot(struct plan *p, uint32_t role, enum slot_kind kind, uint32_t arg);
/* every slot that the mesh allows, in all roles: kinds and masks */
void fields_add_slots(struct plan *p);
/* a copy of a plan that owns its programs and ranks; and its release */
struct plan *fields_copy(struct arena *a, const struct plan *p);
void fields_free(struct plan *p);

#endif
