/* Look-ups in the vocabulary table.  It has a few hundred rows, so all searches are linear. */

#include "compiler/model/vocab.h"

#include "compiler/support/vec.h"

#include <string.h>

#define COUNT TAKES_COUNT
#define REAL TAKES_REAL
#define YES TAKES_YES
#define NAMES TAKES_NAMES
#define STRING TAKES_STRING
#define MANY TAKES_MANY
#define BLOCK TAKES_BLOCK
#define WISH TAKES_WISH
#define FORM TAKES_FORM
#define ARG TAKES_ARG

/* of schedule.def */
static const char schedule_words[] =
#define SCHEDULE(KIND, word, arguments, stages, traits) " " word arguments
#define ORDERED(KIND, word, arguments, stages, traits) " " word arguments
#include "compiler/model/schedule.def"
    " auto";

/* of compiler/target/ */
static const char target_words[] =
#include "compiler/target/names.inc"
    ;

static const struct word table[] = {
#define SCOPE(scope, title)
#define WORD(scope, name, takes, words, lo, hi, standard, plan, meaning)                                               \
    {SCOPE_##scope, #name, takes, words, lo, hi, standard, plan, meaning},
#define REFUSED(word, hint)
#include "compiler/model/vocab.def"
};

static const struct {
    const char *name, *title;
} scopes[] = {
#define SCOPE(scope, title) {#scope, title},
#define WORD(scope, name, takes, words, lo, hi, standard, plan, meaning)
#define REFUSED(word, hint)
#include "compiler/model/vocab.def"
};

static const struct {
    const char *word, *hint;
} refused[] = {
#define SCOPE(scope, title)
#define WORD(scope, name, takes, words, lo, hi, standard, plan, meaning)
#define REFUSED(word, hint) {#word, hint},
#include "compiler/model/vocab.def"
};

size_t vocab_rows(enum scope scope, const struct word **rows)
{
    size_t first = 0, n = 0;
    while (first < ARRAY_LEN(table) && table[first].scope != scope)
        first++;
    while (first + n < ARRAY_LEN(table) && table[first + n].scope == scope)
        n++;
    *rows = &table[first < ARRAY_LEN(table) ? first : 0];
    return n;
}

const struct word *vocab_find(enum scope scope, const char *name)
{
    const struct word *rows;
    size_t n = vocab_rows(scope, &rows);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    return NULL;
}

const char *vocab_title(enum scope scope)
{
    return scopes[scope].title;
}

const char *vocab_scope_name(enum scope scope)
{
    return scopes[scope].name;
}

int vocab_scope(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(scopes); i++)
        if (!strcmp(scopes[i].name, name))
            return (int)i;
    return -1;
}

const char *vocab_refused(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (!strcmp(refused[i].word, name))
            return refused[i].hint;
    return NULL;
}

size_t vocab_nrefused(void)
{
    return ARRAY_LEN(refused);
}

const char *vocab_refused_word(size_t i)
{
    return refused[i].word;
}

bool vocab_choice(const char **at, struct choice *c)
{
    const char *s = *at + strspn(*at, " ");
    size_t n = strcspn(s, " "), name = strcspn(s, " (*");
    if (!n)
        return false;
    *c = (struct choice){.plan_only = s[n - 1] == '*', .scope = -1};
    memcpy(c->name, s, name);
    if (s[name] == '(') {
        char scope[24] = "";
        memcpy(scope, s + name + 1, strcspn(s + name + 1, ")"));
        c->scope = vocab_scope(*scope ? scope : c->name);
    }
    *at = s + n;
    return true;
}

bool vocab_choose(const struct word *row, const char *name, struct choice *c)
{
    if (!(row->takes & TAKES_NAMES))
        return false;
    for (const char *at = row->words; vocab_choice(&at, c);)
        if (!strcmp(c->name, name))
            return true;
    return false;
}

bool vocab_is_value(const char *name)
{
    struct choice c;
    if (!strcmp(name, "yes") || !strcmp(name, "no") || !strcmp(name, "in"))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (vocab_choose(&table[i], name, &c))
            return true;
    return false;
}

const char *vocab_noun(const struct word *row)
{
    static const char *const nouns[][2] = {{"attn", "attention"},
                                           {"ffn", "feed-forward"},
                                           {"expert", "kind of expert"},
                                           {"minimize", "objective"},
                                           {"lr_schedule", "schedule"}};
    for (size_t i = 0; i < ARRAY_LEN(nouns); i++)
        if (!strcmp(nouns[i][0], row->name))
            return nouns[i][1];
    bool list = !strcmp(row->name, "names") || !strcmp(row->name, "parts") || !strcmp(row->name, "orders");
    return list ? row->meaning : row->name;
}

size_t vocab_names(enum scope scope, const char **names, size_t room)
{
    const struct word *rows;
    size_t n = vocab_rows(scope, &rows);
    for (size_t i = 0; i < n && i < room; i++)
        names[i] = rows[i].name;
    return n < room ? n : room;
}
