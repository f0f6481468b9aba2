/* `llmc help target [NAME]`: what the targets have, from their files. */

#include "compiler/support/strbuf.h"
#include "compiler/target/target.h"

enum { INDENT = 20, WIDTH = 110 };

static void print_wrapped(FILE *out, const char *head, const char *text)
{
    struct strbuf line = {0};
    strbuf_printf(&line, "%-*s", INDENT, head);
    strbuf_wrap(&line, text, INDENT, INDENT, WIDTH);
    fprintf(out, "%s\n", line.text);
    strbuf_free(&line);
}

static const char *words_of(struct arena *a, const struct target *t, enum target_row row)
{
    return t->everything ? "all" : t->has[row] ? target_words(a, row, t->has[row]) : "none";
}

void target_help(FILE *out)
{
    struct arena *a = arena_new();
    fputs(
        "Targets: 'target NAME' in the plan block says which software stack will run the plan.  The search chooses\n"
        "nothing that it has not, and seconds and bytes are its own.  llmc help target NAME says where that is from.\n\n",
        out);
    for (size_t i = 0; target_name(i); i++) {
        const struct target *t = target_find(a, target_name(i));
        print_wrapped(out, arena_printf(a, "  %s", t->name), t->title);
    }
    for (enum target_row row = 0; row < TARGET_ROWS; row++) {
        fprintf(out, "\n%s: %s\n", target_row_name(row), target_row_meaning(row));
        for (size_t i = 0; target_name(i); i++) {
            const struct target *t = target_find(a, target_name(i));
            print_wrapped(out, arena_printf(a, "  %s", t->name), words_of(a, t, row));
        }
    }
    arena_free(a);
}

bool target_help_of(FILE *out, const char *name)
{
    struct arena *a = arena_new();
    const struct target *t = target_find(a, name);
    if (t) {
        fprintf(out, "%s: %s\n", t->name, t->title);
        print_wrapped(out, "  profile", t->profile);
        print_wrapped(out, "  launch files",
                      t->launch ? arena_printf(a, "as 'export --to %s' writes them", t->launch) : "none");
    }
    for (enum target_row row = 0; t && row < TARGET_ROWS; row++) {
        print_wrapped(out, arena_printf(a, "  %s", target_row_name(row)), words_of(a, t, row));
        print_wrapped(out, "", t->source[row]);
    }
    for (enum target_row row = TARGET_SETTINGS; t && row < TARGET_ROWS; row++)
        if (t->usual[row])
            print_wrapped(out, "  usual", target_phrase(a, row, t->usual[row]));
    for (uint32_t i = 0; t && i < t->nclashes; i++) {
        const struct target_clash *x = &t->clashes[i];
        print_wrapped(out, "  never",
                      arena_printf(a, "%s with %s", target_phrase(a, x->row[0], x->bit[0]),
                                   target_phrase(a, x->row[1], x->bit[1])));
        print_wrapped(out, "", x->source);
    }
    for (uint32_t i = 0; t && i < t->nnumbers; i++) {
        const struct target_number *x = &t->numbers[i];
        const char *with = x->with_bits ? target_phrase(a, x->with, x->with_bits) : "";
        print_wrapped(out, "  sets",
                      arena_printf(a, "%s%s%s: %s %g", target_phrase(a, x->row, x->bit), *with ? " with " : "", with,
                                   x->adjust.param->name, x->adjust.value));
        print_wrapped(out, "", x->source);
    }
    for (uint32_t i = 0; t && i < t->narguments; i++) {
        const struct target_argument *x = &t->arguments[i];
        print_wrapped(out, "  writes", arena_printf(a, "%s: %s", target_phrase(a, x->row, x->bit), x->text));
    }
    arena_free(a);
    return t;
}
