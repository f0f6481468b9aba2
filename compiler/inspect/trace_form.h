#ifndef LLMC_TRACE_FORM_H
#define LLMC_TRACE_FORM_H

/* How a trace is written: trace.c says what happened, rank by rank and thread by thread, and a form puts it into a
 * file. Slices of a thread, and counts of a rank, ascend in time and do not overlap. */

#include "compiler/emit/plan.h"
#include "compiler/support/strbuf.h"

enum trace_arg_kind { TRACE_NUMBER, TRACE_TEXT, TRACE_REAL };
struct trace_arg {
    const char *key;
    enum trace_arg_kind kind;
    uint64_t number;
    const char *text;
    double real;
};
enum { TRACE_ARGS = 12, TRACE_THREADS = NQUEUES + 2 };
enum trace_flow { FLOW_NONE, FLOW_BEGINS, FLOW_ENDS };

struct trace_slice {
    const char *category, *name;
    uint32_t rank, thread;
    int64_t start_ns, end_ns;
    uint32_t nargs;
    struct trace_arg args[TRACE_ARGS];
    /* the arrow that begins or ends here; both ends have its number */
    enum trace_flow flow;
    const char *flow_name;
    uint64_t flow_id;
};

struct trace_out {
    FILE *stream;
    struct arena *arena; /* that lives as long */
    const char *comma;
    struct strbuf text; /* reused */
    struct perfetto *perfetto;
};

struct trace_form {
    void (*begin)(struct trace_out *o);
    void (*process)(struct trace_out *o, uint32_t rank, const char *name, const char *labels);
    void (*thread)(struct trace_out *o, uint32_t rank, uint32_t thread, const char *name); /* then its slices */
    void (*slice)(struct trace_out *o, const struct trace_slice *s);
    void (*counter)(struct trace_out *o, uint32_t rank); /* then its counts */
    void (*count)(struct trace_out *o, uint32_t rank, int64_t at_ns, uint64_t bytes);
    void (*end)(struct trace_out *o, const struct plan *p, const uint32_t *ranks, uint32_t nranks);
};
extern const struct trace_form trace_json;     /* trace_json.c */
extern const struct trace_form trace_perfetto; /* trace_perfetto.c */

#endif
