/* Targets: the declared rows, the reader of their text form, and those built in (builtin.inc is made from *.target by
 * the Makefile, one string literal per line). */

#include "compiler/target/target.h"

#include "compiler/support/strbuf.h"

#include <stdlib.h>
#include <string.h>

/* of schedule.def, then those orders that come as a file */
static const char schedules[] =
#define SCHEDULE(KIND, word, arguments, stages, traits) " " word
#define ORDERED(KIND, word, arguments, stages, traits) " " word
#include "compiler/model/schedule.def"
    " auto file folded";
#define TARGET_SCHEDULES schedules

static const struct row {
    const char *name, *words, *phrase, *meaning;
    enum target_of of;
} rows[] = {
#define ROW(name, words, phrase, meaning) {#name, words, phrase, meaning, TARGET_OF_ANY},
#define SETTING(name, of, words, phrase, meaning) {#name, words, phrase, meaning, TARGET_OF_##of},
#include "compiler/target/target.def"
};

struct builtin {
    const char *name;
    const char *const *lines;
};
static const struct builtin builtins[] = {
#include "compiler/target/builtin.inc"
};
#define NBUILTINS (sizeof builtins / sizeof builtins[0])

static const char blanks[] = " \t\r";

/* the next word of *at, which moves behind it; its length, 0 at the end */
static size_t next_word(const char **at, const char **word)
{
    *word = *at + strspn(*at, blanks);
    size_t n = strcspn(*word, blanks);
    *at = *word + n;
    return n;
}

/* the bit of a word of n bytes */
static uint32_t bit_of(enum target_row row, const char *word, size_t n)
{
    const char *at = rows[row].words, *own;
    size_t length;
    for (uint32_t bit = 1; (length = next_word(&at, &own)); bit <<= 1)
        if (length == n && !strncmp(own, word, n))
            return bit;
    return 0;
}

static uint32_t all_bits(enum target_row row)
{
    const char *at = rows[row].words, *word;
    uint32_t bits = 0;
    while (next_word(&at, &word))
        bits = bits << 1 | 1;
    return bits;
}

static enum target_row row_of(const char *name, size_t n)
{
    enum target_row row = 0;
    while (row < TARGET_ROWS && (strlen(rows[row].name) != n || strncmp(rows[row].name, name, n) != 0))
        row++;
    return row;
}

/* words of a row as bits; false if there is another, or none */
static bool parse_words(enum target_row row, const char *at, uint32_t *bits)
{
    const char *word;
    uint32_t any = 0;
    *bits = 0;
    for (size_t n; (n = next_word(&at, &word)); any = 1) {
        uint32_t bit = n == 1 && *word == '*' ? all_bits(row) : bit_of(row, word, n);
        if (!bit && !(n == 1 && *word == '-'))
            return false;
        *bits |= bit;
    }
    return any;
}

/* "recompute full": the bit of that word; 0 if there is none, or no such row */
static uint32_t parse_word(const char **at, enum target_row *row)
{
    const char *word;
    size_t n = next_word(at, &word);
    *row = row_of(word, n);
    n = next_word(at, &word);
    return *row < TARGET_ROWS ? bit_of(*row, word, n) : 0;
}

/* "with" */
static bool parse_with(const char **at)
{
    const char *word;
    size_t n = next_word(at, &word);
    return n == 4 && strncmp(word, "with", 4) == 0;
}

static bool parse_end(const char *at)
{
    const char *word;
    return next_word(&at, &word) == 0;
}

/* "schedule combined_1f1b with recompute full" */
static bool parse_clash(struct target *t, const char *at, const char *source)
{
    struct target_clash x = {.source = source};
    x.bit[0] = parse_word(&at, &x.row[0]);
    if (!x.bit[0] || !parse_with(&at))
        return false;
    x.bit[1] = parse_word(&at, &x.row[1]);
    if (!x.bit[1] || !parse_end(at) || t->nclashes == TARGET_CLASHES)
        return false;
    t->clashes[t->nclashes++] = x;
    return true;
}

/* "dispatcher alltoall", of settings alone; 0: it is none of their words */
static uint32_t parse_setting(const char **at, enum target_row *row)
{
    uint32_t bit = parse_word(at, row);
    return *row >= TARGET_SETTINGS ? bit : 0;
}

/* "dispatcher alltoall ep_once_per_node 0", "async_tp yes tp_shown 0.8 with precision fp8_row" */
static bool parse_number(struct arena *a, struct target *t, const char *at, const char *source)
{
    const char *word;
    struct target_number x = {.source = source};
    x.bit = parse_setting(&at, &x.row);
    size_t n = next_word(&at, &word);
    const struct profile_param *param = x.adjust.param = profile_param(arena_strndup(a, word, n));
    n = next_word(&at, &word);
    char *end;
    x.adjust.value = strtod(word, &end);
    if (!x.bit || !param || !n || end != word + n || x.adjust.value < param->low || x.adjust.value > param->high)
        return false;
    if (!parse_end(at)) {
        x.with_bits = parse_with(&at) ? parse_word(&at, &x.with) : 0;
        if (!x.with_bits || x.with < TARGET_offload) /* what a decision has is not known before the search */
            return false;
    }
    if (!parse_end(at) || t->nnumbers == TARGET_NUMBERS)
        return false;
    t->numbers[t->nnumbers++] = x;
    return true;
}

/* "dispatcher alltoall --moe-token-dispatcher-type alltoall" */
static bool parse_argument(struct target *t, const char *at)
{
    struct target_argument x = {0};
    x.bit = parse_setting(&at, &x.row);
    x.text = at + strspn(at, blanks);
    if (!x.bit || !*x.text || t->narguments == TARGET_ARGUMENTS)
        return false;
    t->arguments[t->narguments++] = x;
    return true;
}

/* "compile yes" */
static bool parse_usual(struct target *t, const char *at)
{
    enum target_row row;
    uint32_t bit = parse_setting(&at, &row);
    if (!bit || !parse_end(at))
        return false;
    t->usual[row] = bit;
    return true;
}

/* a line without its newline and what comment it has; what is wrong with it, or NULL */
static const char *parse_line(struct arena *a, struct target *t, char *line)
{
    const char *source = "", *at = line, *word;
    char *bar = strchr(line, '|');
    if (bar) {
        *bar = 0;
        source = bar + 1 + strspn(bar + 1, blanks);
    }
    size_t n = next_word(&at, &word);
    if (!n)
        return NULL;
    const char *key = arena_strndup(a, word, n), *rest = at + strspn(at, blanks);
    const char **text = !strcmp(key, "title")     ? &t->title
                        : !strcmp(key, "profile") ? &t->profile
                        : !strcmp(key, "launch")  ? &t->launch
                                                  : NULL;
    if (text) {
        *text = rest;
        return *rest ? NULL : "a value is missing";
    }
    if (!strcmp(key, "never"))
        return parse_clash(t, rest, source) ? NULL : "an exclusion is written: never ROW WORD with ROW WORD";
    if (!strcmp(key, "sets"))
        return parse_number(a, t, rest, source)
                   ? NULL
                   : "a setting's number is written: sets ROW WORD PARAMETER VALUE [with ROW WORD]";
    if (!strcmp(key, "usual"))
        return parse_usual(t, rest) ? NULL : "a setting's usual word is written: usual ROW WORD";
    if (!strcmp(key, "writes"))
        return parse_argument(t, rest) ? NULL : "a setting's arguments are written: writes ROW WORD ARGUMENTS";
    enum target_row row = row_of(key, n);
    if (row == TARGET_ROWS)
        return "unknown row";
    t->source[row] = source;
    return parse_words(row, rest, &t->has[row]) ? NULL : "not a word of this row";
}

struct target *target_parse(struct arena *a, const char *name, const char *text, unsigned *line, const char **why)
{
    struct target *t = ARENA_NEW(a, struct target);
    *t = (struct target){.name = name};
    for (int row = 0; row < TARGET_ROWS; row++)
        t->source[row] = "";
    *line = 0;
    for (const char *at = text, *next; *at; at = next) {
        size_t n = strcspn(at, "\n");
        next = at + n + (at[n] == '\n');
        char *copy = arena_strndup(a, at, n);
        copy[strcspn(copy, "#")] = 0;
        for (n = strlen(copy); n && strchr(blanks, copy[n - 1]); n--)
            copy[n - 1] = 0;
        ++*line;
        *why = parse_line(a, t, copy);
        if (*why)
            return NULL;
    }
    *why = "a target names its title and its profile";
    if (!t->title || !t->profile)
        return NULL;
    t->everything = !t->nclashes;
    for (int row = 0; row < TARGET_SETTINGS; row++)
        t->everything = t->everything && t->has[row] == all_bits((enum target_row)row);
    return t;
}

static const char *text_of(struct arena *a, const char *const *lines)
{
    struct strbuf text = {0};
    for (size_t i = 0; lines[i]; i++)
        strbuf_text(&text, lines[i]);
    const char *whole = arena_strndup(a, text.text, text.length);
    strbuf_free(&text);
    return whole;
}

const struct target *target_find(struct arena *a, const char *name)
{
    unsigned line;
    const char *why;
    for (size_t i = 0; i < NBUILTINS; i++)
        if (!strcmp(builtins[i].name, name))
            return target_parse(a, builtins[i].name, text_of(a, builtins[i].lines), &line, &why);
    return NULL;
}

void target_set(const struct target *t, const uint32_t has[TARGET_ROWS], struct profile *p)
{
    for (uint32_t i = 0; i < t->nnumbers; i++) {
        const struct target_number *x = &t->numbers[i];
        if (has[x->row] & x->bit && (!x->with_bits || has[x->with] & x->with_bits))
            profile_adjust(p, &x->adjust, 1);
    }
}

const char *target_argument(const struct target *t, enum target_row row, uint32_t bit)
{
    for (uint32_t i = 0; i < t->narguments; i++)
        if (t->arguments[i].row == row && t->arguments[i].bit == bit)
            return t->arguments[i].text;
    return NULL;
}

enum target_of target_setting_of(enum target_row row)
{
    return rows[row].of;
}

const char *target_name(size_t i)
{
    return i < NBUILTINS ? builtins[i].name : NULL;
}

const char *target_row_name(enum target_row row)
{
    return rows[row].name;
}

const char *target_row_meaning(enum target_row row)
{
    return rows[row].meaning;
}

uint32_t target_bit(enum target_row row, const char *word)
{
    return bit_of(row, word, strlen(word));
}

const char *target_words(struct arena *a, enum target_row row, uint32_t bits)
{
    const char *at = rows[row].words, *word, *text = "";
    size_t n;
    for (uint32_t bit = 1; (n = next_word(&at, &word)); bit <<= 1)
        if (bits & bit)
            text = arena_printf(a, "%s%s%.*s", text, *text ? ", " : "", (int)n, word);
    return text;
}

const char *target_phrase(struct arena *a, enum target_row row, uint32_t bits)
{
    const char *word = target_words(a, row, bits & (0 - bits)), *gap = strstr(rows[row].phrase, "%s");
    return arena_printf(a, "%.*s%s%s", (int)(gap - rows[row].phrase), rows[row].phrase, word, gap + 2);
}
