/* Changes of plans by hand; see alter.h.  A program is printed, its text changed line by line, and parsed. */

#include "tests/compiler/verify/alter.h"

#include "compiler/support/strbuf.h"
#include "tests/compiler/verify/mutate.h"
#include "tests/runtime/program_parse.h"

#include <stdlib.h>
#include <string.h>

struct text {
    struct arena *arena;
    char **line;
    size_t n;
};

/* Operands name buffers without their numbers, "%grad.head[3x64]f32", where a name is only one buffer's. */
static const char *number_of(const struct text *t, const char *name, size_t n, bool *unique)
{
    const char *found = NULL;
    *unique = true;
    for (size_t i = 0; i < t->n; i++) {
        if (strncmp(t->line[i], "buffer ", 7) != 0)
            continue;
        const char *number = t->line[i] + 7, *have = strchr(number, ' ') + 1;
        if (strcspn(have, " ") != n || strncmp(have, name, n) != 0)
            continue;
        *unique = !found;
        found = number;
    }
    return found;
}

/* without numbers, or with them again */
static char *renamed(const struct text *t, const char *line, bool numbers)
{
    struct strbuf b = {0};
    while (*line) {
        strbuf_char(&b, *line);
        if (*line++ != '%')
            continue;
        size_t n = strcspn(line, "#~+[ ");
        bool unique;
        const char *number = number_of(t, line, n, &unique);
        strbuf_printf(&b, "%.*s", (int)n, line);
        line += n;
        if (numbers && number && *line != '#')
            strbuf_printf(&b, "#%.*s", (int)strcspn(number, " "), number);
        else if (!numbers && unique && *line == '#')
            line += 1 + strspn(line + 1, "0123456789");
    }
    char *copy = arena_printf(t->arena, "%s", b.text ? b.text : "");
    strbuf_free(&b);
    return copy;
}

static struct text split(struct arena *a, const struct program *p)
{
    struct text t = {a, NULL, 0};
    char *printed = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&printed, &size);
    program_print(p, f);
    fclose(f);
    for (const char *s = printed; *s; s++)
        t.n += *s == '\n';
    t.line = ARENA_ARRAY(a, char *, t.n + 1);
    t.n = 0;
    for (const char *s = printed; *s; s += strcspn(s, "\n") + 1)
        t.line[t.n++] = arena_printf(a, "%.*s", (int)strcspn(s, "\n"), s);
    free(printed);
    for (size_t i = 0; i < t.n; i++)
        t.line[i] = renamed(&t, t.line[i], false);
    return t;
}

static bool has_words(const char *line, const char *words)
{
    for (const char *w = words; *w; w += strspn(w, " ")) {
        size_t n = strcspn(w, " ");
        char word[200];
        snprintf(word, sizeof word, "%.*s", (int)n, w);
        if (!strstr(line, word))
            return false;
        w += n;
    }
    return true;
}

/* "12 compute ADD ...": the queue's name; 0: the line is no instruction */
static size_t queue_of(const char *line, const char **name)
{
    size_t digits = strspn(line, "0123456789");
    *name = line + digits + 1;
    return digits && line[digits] == ' ' ? strcspn(*name, " ") : 0;
}

static size_t position_of(const struct text *t, size_t at)
{
    const char *mine, *name;
    size_t n = queue_of(t->line[at], &mine), position = 0;
    for (size_t i = 0; i < at; i++)
        position += queue_of(t->line[i], &name) == n && !strncmp(name, mine, n);
    return position;
}

/* the waits of a line when instruction `gone` of a queue is no longer there */
static char *follow(struct arena *a, const char *line, const char *queue, size_t n, size_t gone)
{
    struct strbuf b = {0};
    const char *mark = arena_printf(a, " <%.*s:", (int)n, queue), *at;
    for (; (at = strstr(line, mark)); line += strcspn(line + 1, " ") + 1) {
        size_t position = strtoul(at + strlen(mark), NULL, 10);
        strbuf_printf(&b, "%.*s", (int)(at - line), line);
        if (position != gone)
            strbuf_printf(&b, "%s%zu", mark, position - (position > gone));
        line = at;
    }
    char *followed = arena_printf(a, "%s%s", b.text ? b.text : "", line);
    strbuf_free(&b);
    return followed;
}

static bool drop(struct text *t, size_t at)
{
    const char *queue;
    size_t n = queue_of(t->line[at], &queue), gone = n ? position_of(t, at) : 0;
    for (size_t i = at; i + 1 < t->n; i++)
        t->line[i] = t->line[i + 1];
    t->n--;
    for (size_t i = 0; n && i < t->n; i++)
        t->line[i] = follow(t->arena, t->line[i], queue, n, gone);
    return true;
}

/* Two neighbours of a queue change places, but for the numbers in front of them: those grow.  Waits stay with
 * places. */
static bool swap(struct text *t, size_t at)
{
    const char *queue, *other = NULL;
    size_t n = queue_of(t->line[at], &queue), next = at + 1;
    while (n && next < t->n && (queue_of(t->line[next], &other) != n || strncmp(other, queue, n) != 0))
        next++;
    if (!n || next == t->n)
        return false;
    char *first = arena_printf(t->arena, "%.*s %s", (int)strcspn(t->line[at], " "), t->line[at], other);
    t->line[next] = arena_printf(t->arena, "%.*s %s", (int)strcspn(t->line[next], " "), t->line[next], queue);
    t->line[at] = first;
    return true;
}

static bool alter_line(struct text *t, size_t at, const struct alteration *x)
{
    char *line = t->line[at], *found;
    if (!x->to)
        return x->from && !strcmp(x->from, "swap") ? swap(t, at) : drop(t, at);
    if (!*x->from) {
        t->line[at] = arena_printf(t->arena, "%s%s", line, x->to);
        return true;
    }
    found = strstr(line, x->from);
    if (found)
        t->line[at] = arena_printf(t->arena, "%.*s%s%s", (int)(found - line), line, x->to, found + strlen(x->from));
    return found;
}

/* in how many lines */
static size_t alter_text(struct text *t, const struct alteration *x)
{
    bool every = *x->line == '*';
    size_t n = 0;
    for (size_t i = 0; i < t->n && (every || !n); i++) {
        size_t before = t->n;
        if (has_words(t->line[i], x->line + every) && (!every || !x->to || strstr(t->line[i], x->from)))
            n += alter_line(t, i, x);
        i -= t->n < before;
    }
    return n;
}

static bool names(const char *which, const struct program *p)
{
    if (!*which)
        return true;
    return (which[0] == 'e') == p->evaluation && (!which[1] || strtoul(which + 1, NULL, 10) == p->role);
}

static struct program *alter_program(struct arena *a, const struct program *p, const struct alteration *x,
                                     size_t *changed, const char **why)
{
    struct text t = split(a, p);
    struct program *q = NULL;
    struct strbuf b = {0};
    struct error error = {""};
    size_t before = 0, mine = 0;
    for (size_t k = 0; k < MOST_ALTERATIONS && x[k].program; k++) {
        before = names(x[k].program, p) ? alter_text(&t, &x[k]) : 0;
        changed[k] += before;
        mine += before;
    }
    for (size_t i = 0; i < t.n; i++)
        strbuf_printf(&b, "%s\n", mine ? renamed(&t, t.line[i], true) : t.line[i]);
    if (mine && program_parse(b.text, strlen(b.text), &q, &error) != STATUS_OK) {
        *why = arena_strdup(a, error.text);
        q = NULL;
    }
    strbuf_free(&b);
    return q;
}

struct plan *alter_plan(struct arena *a, const struct plan *p, const struct alteration x[MOST_ALTERATIONS],
                        const char **why)
{
    size_t changed[MOST_ALTERATIONS] = {0};
    struct plan *q = ARENA_NEW(a, struct plan);
    *q = *p;
    *why = NULL;
    q->train = ARENA_ARRAY(a, struct program *, p->nroles);
    q->eval = ARENA_ARRAY(a, struct program *, p->nroles);
    q->ranks = mutate_copy_ranks(p->ranks);
    for (uint32_t r = 0; r < p->nroles; r++) {
        struct program *t = alter_program(a, p->train[r], x, changed, why),
                       *e = alter_program(a, p->eval[r], x, changed, why);
        q->train[r] = t ? t : p->train[r];
        q->eval[r] = e ? e : p->eval[r];
    }
    for (size_t k = 0; k < MOST_ALTERATIONS && x[k].program && !*why; k++)
        if (!changed[k])
            *why = arena_printf(a, "no line has '%s' with '%s'", x[k].line, x[k].from ? x[k].from : "");
    if (!*why)
        return q;
    altered_free(q, p);
    return NULL;
}

void altered_free(struct plan *altered, const struct plan *p)
{
    for (uint32_t r = 0; r < p->nroles; r++) {
        if (altered->train[r] != p->train[r])
            program_free(altered->train[r]);
        if (altered->eval[r] != p->eval[r])
            program_free(altered->eval[r]);
    }
    ranks_free(altered->ranks);
}
