/* The text form of an expansion: one operator a line, inputs, output and weights with their shapes. */

#include "compiler/model/expand.h"

#include <inttypes.h>

static void print_value(const struct expansion *e, uint32_t v, FILE *out)
{
    if (v == UINT32_MAX)
        return;
    const struct opr_value *x = &e->values[v];
    fprintf(out, " %s[%s%" PRIu64 "]", x->name, x->class == CLASS_COLS ? "/" : "", x->cols);
}

static void print_weight(const struct opr_weight *w, FILE *out)
{
    static const char *const split[] = {[SPLIT_NONE] = "", [SPLIT_ROWS] = " rows/tp", [SPLIT_COLS] = " cols/tp"};
    static const char *const init[] = {
        [WEIGHT_NORMAL] = "normal", [WEIGHT_RESIDUAL] = "residual", [WEIGHT_ONES] = "ones", [WEIGHT_ZEROS] = "zeros"};
    fprintf(out, "    %s", w->suffix);
    if (w->vector)
        fprintf(out, " [%" PRIu64 "]", w->cols);
    else
        fprintf(out, " [%" PRIu64 "x%" PRIu64 "]", w->rows, w->cols);
    if (w->family)
        fprintf(out, " in %" PRIu32 "%s", w->family, w->member_split == SPLIT_ROWS ? " rows/etp" : " cols/etp");
    else if (w->hf_rows != (w->vector ? w->cols : w->rows))
        fprintf(out, " from output %" PRIu64 " of %" PRIu64, w->hf_row, w->hf_rows);
    fprintf(out, "%s%s %s%s\n", w->transposed ? " transposed" : "", split[w->split], init[w->init],
            w->decay ? "" : " no-decay");
}

void expand_print(const struct expansion *e, FILE *out)
{
    for (uint32_t i = 0; i < e->noprs; i++) {
        const struct opr *o = &e->oprs[i];
        fprintf(out, "  %-12s %-10s%s:", o->name, opr_info(o->kind)->name, o->row_parallel ? " row-parallel" : "");
        print_value(e, o->in[0], out);
        print_value(e, o->in[1], out);
        fputs(" ->", out);
        print_value(e, o->out, out);
        fputc('\n', out);
        for (uint32_t k = 0; k < o->nweights; k++)
            print_weight(&e->weights[o->weight + k], out);
        for (uint32_t k = 0; k < o->nbiases; k++)
            print_weight(&e->weights[o->bias + k], out);
    }
}
