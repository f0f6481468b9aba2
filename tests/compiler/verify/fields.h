#ifndef LLMC_TESTS_FIELDS_H
#define LLMC_TESTS_FIELDS_H

/* Changes of any field of any table of a plan, one at a time, as a broken compiler, or somebody who computes
 * the folder's hashes anew, could make them: which fields there are (fields_table.c), what is drawn for them
 * (fields_change.c), whether an accepted change does harm (fields_judge.c, fields_host.c), and the count
 * (fields_run.c). */

#include "compiler/support/vec.h"
#include "tests/compiler/verify/mutate.h"

/* ---- fields_slots.c ---- */

/* one more slot in both programs of a role, with the mesh's values in ranks.bin; the plan's programs and
 * ranks are its own. Its index. */
uint32_t fields_add_slot(struct plan *p, uint32_t role, enum slot_kind kind, uint32_t arg);
/* every slot that the mesh allows, in all roles: kinds and masks */
void fields_add_slots(struct plan *p);
void fields_free(struct plan *p); /* what mutate_copy_plan() has made */

/* ---- fields_table.c ---- */

enum fields_table {
    FIELDS_PROGRAM,
    FIELDS_SLOT,
    FIELDS_RING,
    FIELDS_BUFFER,
    FIELDS_BUCKET,
    FIELDS_TENSOR,
    FIELDS_PLACE,
    FIELDS_INSN,
    FIELDS_OPERAND,
    FIELDS_ATTR,
    FIELDS_WAIT,
    FIELDS_RANKS, /* from here on: not of a program */
    FIELDS_GROUP,
    FIELDS_RANK,
    FIELDS_VALUE,
    FIELDS_DECISION,
    NFIELDS_TABLES
};
/* what a field is, which says what is drawn for it */
enum fields_type {
    FIELDS_NUMBER, /* a whole number of `size` bytes */
    FIELDS_REAL,
    FIELDS_NAME,
    FIELDS_CHOICE,    /* an enumerator below `most`, or a flag */
    FIELDS_INDEX,     /* of a row below `most`, or of the program's table `of`; all ones: none */
    FIELDS_ROW,       /* all of a row, from another one of its table */
    FIELDS_REDECLARED /* kind, argument, largest value and the ranks' values of a slot, from another slot */
};
struct field {
    enum fields_table table;
    const char *name;
    enum fields_type type;
    uint32_t offset, size;
    uint32_t most;        /* CHOICE */
    enum fields_table of; /* INDEX */
    bool people;          /* nothing but what is printed may depend on it */
};
extern const struct field fields_all[];
extern const uint32_t fields_n;
extern const char *const fields_table_names[NFIELDS_TABLES];

/* the rows of a table: of a program, or of the plan (p NULL) */
struct fields_rows {
    void *at;
    uint32_t n, stride;
};
struct fields_rows fields_rows(struct plan *plan, struct program *p, enum fields_table t);

/* ---- fields_change.c ---- */

struct fields_undo {
    void *at;
    uint32_t size;
    char old[232];
};
struct fields_change {
    const struct field *field, *second; /* of the same row; NULL: one field is changed */
    uint32_t role, row;
    bool evaluation;
    VEC(struct fields_undo) undo;
    char text[500];
};
/* draws and makes a change of a field in a plan that owns its tables; false: nothing to change was found */
bool fields_change(struct arena *a, struct plan *p, const struct field *f, uint64_t *random,
                   struct fields_change *c);
/* References to slots, one of each kind: of a table's field, or of an instruction's operand or attribute, and
 * with each slot that is there now.  How many; the first `room` are written. */
struct fields_site {
    const struct field *field;
    uint32_t role, row, insn, nth;
    bool evaluation;
    uint64_t slot;
};
uint32_t fields_sites(struct plan *p, struct fields_site *out, uint32_t room);
/* makes a site refer to another slot, alone or wherever the same stands in any program; false: it does
 * already */
bool fields_refer(struct arena *a, struct plan *p, const struct fields_site *s, uint64_t slot,
                  bool everywhere, struct fields_change *c);
void fields_undo(struct plan *p, const struct fields_change *c, const struct plan *base);
/* may only people see it?  Some fields are theirs in some rows alone. */
bool fields_for_people(const struct plan *p, const struct fields_change *c);

/* ---- fields_host.c, fields_judge.c ---- */

struct fields_host; /* what the host does with a plan: what it fills in, loads and saves */
struct fields_bench {
    struct plan *plan;               /* with every slot; changes are made in it and undone */
    const struct plan *base;         /* the same, unchanged */
    const struct exact_truth *truth; /* of one rank; of the plan itself where its experts lack room */
    const struct fields_host *host;
    uint32_t judged; /* so far */
};
struct fields_host *fields_host_new(struct arena *a, const struct plan *p, const char *folder,
                                    const char **why);
void fields_host_free(struct fields_host *h);
/* NULL, or what the host would do otherwise */
const char *fields_host_harm(struct arena *a, const struct fields_host *h, const struct plan *p);
/* NULL, or how the changed plan differs from the unchanged one where it is run */
const char *fields_harm(struct arena *a, struct fields_bench *b, const struct fields_change *c);

/* ---- fields_run.c ---- */

/* so many changes over all plans from a seed on; the number of holes */
uint64_t fields_run(uint64_t changes, uint64_t seed, bool all_plans);

#endif
