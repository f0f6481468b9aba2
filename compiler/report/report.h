#ifndef LLMC_REPORT_H
#define LLMC_REPORT_H

/* `llmc report`: one or two plans as a page that needs nothing else, to look at in any browser.
 *
 * The page holds, per plan, a JSON object of what the other views print (data.c) and the whole simulated step as a
 * compressed record (record.c); page/ has the page itself, which the build puts into the program. */

#include "compiler/emit/plan.h"
#include "compiler/inspect/traffic.h"
#include "compiler/search/search.h"
#include "compiler/support/strbuf.h"
#include "compiler/verify/verify.h"

/* what a page says of one plan */
struct report_plan {
    const char *name; /* of its folder */
    const struct plan *plan;
    const struct verdict *verdict;
    const struct search_result *found; /* the plans that its search kept */
};

/* Writes the page; n: 1 or 2 plans. */
enum status report_write(const struct report_plan *plans, uint32_t n, FILE *out, struct error *error);

/* Writes a JSON value into a page, as the text of a <script> of that id, which nothing in it can end. */
void report_script(const char *id, const char *json, FILE *out);

/* --- shared by the files of this folder --- */

/* The different partners of a role's instructions: of[i] is the index in `list` of instruction i's, or NONE. */
struct report_transfers {
    uint32_t n, *of;
    const struct transfer *list; /* bytes: not meant */
};
struct report_transfers report_transfers(struct arena *a, const struct plan *p, uint32_t role);
/* names of a program's classes of memory, in the order of the record */
const char *const *report_memory_classes(struct arena *a, const struct program *p, uint32_t *n);

/* prints a plan's JSON object */
void report_data(const struct report_plan *p, struct strbuf *out);
/* Appends the record of a plan's step, uncompressed; record.c says what it holds. */
void report_record(const struct plan *p, struct strbuf *out);

#endif
