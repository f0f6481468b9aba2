/* `llmc help language`: the reference of the model language, printed from the vocabulary table. */

#include "compiler/model/vocab.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <string.h>

/* columns: a word's values, their meaning, and how wide a line may be */
enum { WORD = 21, MEANING = 53, WIDTH = 110 };

static const char introduction[] =
    "The model language, version 1\n"
    "\n"
    "  llmc 1\n"
    "  model NAME { ... }      what it is\n"
    "  train { ... }           the job\n"
    "  plan { ... }            wishes for the plan; may be absent\n"
    "\n"
    "A statement is a word, its values and perhaps a block; it ends with its line or with ';'.\n"
    "'#' starts a comment.\n"
    "Calls carry arguments by position or by name: gqa(heads=32, kv=8).  A name directly followed by '(' is "
    "a call.\n"
    "let NAME = value names a number or a sublayer; it is visible below, in its block and inner ones.\n"
    "Numbers: 126, 128_256, 1e-5; K M G T are decimal, Ki Mi Gi Ti binary; + - * / and parentheses work.\n"
    "Units are glued to numbers: 80GiB 80GB, 400Gb/s 50GB/s, 989TFLOP/s, ns us ms s min h d.\n";

/* what may stand behind the word */
static void print_form(struct strbuf *out, const struct word *w)
{
    const char *join = "";
    if (w->takes & TAKES_FORM) {
        strbuf_text(out, w->words);
        return;
    }
    if (w->takes & TAKES_WISH) {
        strbuf_text(out, "<= N, >= N, = N, in [N, ...]");
        return;
    }
    if (w->takes & (TAKES_COUNT | TAKES_REAL)) {
        strbuf_text(out, w->takes & TAKES_COUNT ? "N" : "F");
        join = " | ";
    }
    if (w->takes & TAKES_YES) {
        strbuf_printf(out, "%syes | no", join);
        join = " | ";
    }
    if (w->takes & TAKES_STRING)
        strbuf_text(out, "NAME");
    struct choice c;
    for (const char *at = w->words; (w->takes & TAKES_NAMES) && vocab_choice(&at, &c); join = " | ") {
        strbuf_printf(out, "%s%s%s%s", join, c.name, c.scope >= 0 ? "(...)" : "", c.plan_only ? "*" : "");
    }
}

static void print_row(FILE *out, const struct word *w)
{
    struct strbuf form = {0}, tail = {0}, row = {0};
    print_form(&form, w);
    strbuf_text(&tail, w->meaning);
    if ((w->takes & TAKES_COUNT) && w->hi < 1e9)
        strbuf_printf(&tail, "; %s to %s", units_show_commas((uint64_t)w->lo).s, units_show_commas((uint64_t)w->hi).s);
    if (!w->standard)
        strbuf_text(&tail, "; required");
    else if (*w->standard && (strcmp(w->standard, "0") != 0 || !strstr(w->meaning, "default")))
        strbuf_printf(&tail, "; default %s", w->standard);
    if (*w->plan == '*')
        strbuf_text(&tail, " *");
    strbuf_printf(&row, "  %-18s ", w->name);
    strbuf_wrap(&row, form.text ? form.text : "", WORD, WORD, WIDTH);
    if (form.length > MEANING - WORD - 2)
        strbuf_printf(&row, "\n%*s", MEANING, "");
    else
        strbuf_repeat(&row, ' ', MEANING - WORD - form.length);
    strbuf_wrap(&row, tail.text, MEANING, MEANING, WIDTH);
    fprintf(out, "%s\n", row.text);
    strbuf_free(&form);
    strbuf_free(&tail);
    strbuf_free(&row);
}

/* is there a word, or a name that it takes, that cannot be run? */
static bool any_plan_only(void)
{
    bool any = false;
    for (int scope = 0; scope < NSCOPES; scope++) {
        const struct word *rows;
        size_t n = vocab_rows((enum scope)scope, &rows);
        for (size_t i = 0; i < n; i++) {
            const char *at = rows[i].words;
            any |= *rows[i].plan == '*';
            for (struct choice c; (rows[i].takes & TAKES_NAMES) && vocab_choice(&at, &c);)
                any |= c.plan_only;
        }
    }
    return any;
}

static void print_scope(FILE *out, enum scope scope, const char *only)
{
    const struct word *rows;
    size_t n = vocab_rows(scope, &rows);
    fprintf(out, "\n%s\n", vocab_title(scope));
    for (size_t i = 0; i < n; i++)
        if (!only || !strcmp(rows[i].name, only))
            print_row(out, &rows[i]);
}

static bool has_row(enum scope scope, const char *word)
{
    const struct word *rows;
    size_t n = vocab_rows(scope, &rows);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(rows[i].name, word))
            return true;
    return false;
}

/* is the scope about that word: is it one of the title's? */
static bool about(enum scope scope, const char *word)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t n = strlen(word);
    for (const char *at = vocab_title(scope); *at; at += strcspn(at, letters)) {
        size_t length = strspn(at, letters);
        if (length == n && n && !strncmp(at, word, n))
            return true;
        at += length;
    }
    return !strcmp(vocab_scope_name(scope), word);
}

bool help_word(FILE *out, const char *word)
{
    bool any = false;
    for (int scope = 0; scope < NSCOPES; scope++) {
        bool whole = about((enum scope)scope, word);
        if (whole || has_row((enum scope)scope, word))
            print_scope(out, (enum scope)scope, whole ? NULL : word);
        any |= whole || has_row((enum scope)scope, word);
    }
    return any;
}

void help_language(FILE *out)
{
    fputs(introduction, out);
    if (any_plan_only())
        fputs("Marked *: can be planned and estimated, not run yet.\n", out);
    for (int scope = 0; scope < NSCOPES; scope++)
        print_scope(out, (enum scope)scope, NULL);
    fputs("\nKnown, and not supported\n", out);
    for (size_t i = 0; i < vocab_nrefused(); i++)
        fprintf(out, "  %-18s %s\n", vocab_refused_word(i), vocab_refused(vocab_refused_word(i)));
}
