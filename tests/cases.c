/* A case's text is a list of lines while it is changed, the common one's to begin with. */

#include "tests/cases.h"

#include "compiler/support/diag.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <CUnit/CUnit.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct line {
    const char *at;
    size_t n;
    bool open; /* the next one goes on behind it */
};
struct base {
    const char *name;
    const struct line *lines;
    size_t nlines;
};
struct reader {
    struct arena *a;
    const char *path;
    uint32_t number; /* of the line that is read */
    VEC(struct base) bases;
    VEC(struct text_case) cases;
    VEC(struct line) text; /* of what is read now */
    size_t cursor;         /* where lines are added; SIZE_MAX: at the end */
    const char *wanted;
    enum { NOTHING, BASE, CASE } in;
};

static void malformed(const struct reader *r, const char *why)
{
    printf("\n    %s:%u: %s", r->path, r->number, why);
    CU_FAIL_FATAL("malformed file of cases");
}

static void insert(struct reader *r, struct line x)
{
    vec_push(r->a, &r->text, x);
    if (r->cursor == SIZE_MAX)
        return;
    struct line *to = r->text.at + r->cursor++;
    memmove(to + 1, to, (r->text.n - r->cursor) * sizeof *to);
    *to = x;
}

static struct line without_blanks(const char *at, size_t n)
{
    while (n && (*at == ' ' || *at == '\t')) {
        at++;
        n--;
    }
    return (struct line){at, n, false};
}

/* go to the next line of the text that equals x */
static void find(struct reader *r, struct line x)
{
    for (r->cursor = r->cursor == SIZE_MAX ? 0 : r->cursor; r->cursor < r->text.n; r->cursor++) {
        const struct line *own = &r->text.at[r->cursor], bare = without_blanks(own->at, own->n);
        if (bare.n == x.n && !memcmp(bare.at, x.at, x.n))
            return;
    }
    malformed(r, "the text has no such line from here on");
}

static void drop(struct reader *r)
{
    struct line *from = r->text.at + r->cursor;
    memmove(from, from + 1, (--r->text.n - r->cursor) * sizeof *from);
}

/* \xHH, \\, and \c at the end */
static struct line unescaped(struct reader *r, const char *at, size_t n)
{
    char *bytes = arena_alloc(r->a, n + 1), hex[3] = {0};
    struct line x = {bytes, 0, false};
    for (size_t i = 0; i < n; i++) {
        if (at[i] != '\\') {
            bytes[x.n++] = at[i];
        } else if (i + 3 < n && at[i + 1] == 'x') {
            memcpy(hex, at + i + 2, 2);
            bytes[x.n++] = (char)strtoul(hex, NULL, 16);
            i += 3;
        } else if (i + 1 < n && at[i + 1] == '\\') {
            bytes[x.n++] = at[i++];
        } else if (i + 2 == n && at[i + 1] == 'c') {
            x.open = true;
            break;
        } else {
            malformed(r, "an escape is \\xHH, \\\\ or, at the end, \\c");
        }
    }
    return x;
}

static struct line repeated(struct reader *r, const char *at, size_t n)
{
    char *end;
    size_t times = strtoul(at, &end, 10), skip = (size_t)(end - at) + 1;
    if (!times || *end != ' ' || skip > n)
        malformed(r, "repeated words are written * N WORDS");
    char *bytes = arena_alloc(r->a, times * (n - skip) + 1);
    for (size_t i = 0; i < times; i++)
        memcpy(bytes + i * (n - skip), at + skip, n - skip);
    return (struct line){bytes, times * (n - skip), true};
}

/* the base or case that was read until here */
static void end_text(struct reader *r)
{
    struct strbuf joined = {0};
    for (size_t i = 0; i < r->text.n && r->in == CASE; i++) {
        strbuf_bytes(&joined, r->text.at[i].at, r->text.at[i].n);
        strbuf_text(&joined, r->text.at[i].open ? "" : "\n");
    }
    if (r->in == CASE) {
        struct text_case *c = &r->cases.at[r->cases.n - 1];
        c->text = joined.length ? arena_strndup(r->a, joined.text, joined.length) : "";
        c->size = joined.length;
        c->wanted = r->wanted;
    } else if (r->in == BASE) {
        while (r->text.n && !r->text.at[r->text.n - 1].n)
            r->text.n--;
        struct base *b = &r->bases.at[r->bases.n - 1];
        b->lines = r->text.at;
        b->nlines = r->text.n;
    }
    strbuf_free(&joined);
    memset(&r->text, 0, sizeof r->text);
    r->wanted = "";
    r->cursor = SIZE_MAX;
}

/* behind ==: base NAME, or NAME, or NAME from BASE */
static void begin_text(struct reader *r, const char *head)
{
    const char *from = strstr(head, " from ");
    end_text(r);
    if (!strncmp(head, "base ", 5)) {
        r->in = BASE;
        vec_push(r->a, &r->bases, (struct base){.name = head + 5});
        return;
    }
    r->in = CASE;
    vec_push(r->a, &r->cases, (struct text_case){.name = from ? arena_strndup(r->a, head, (size_t)(from - head)) : head});
    for (size_t i = 0; from && i < r->bases.n; i++) {
        const struct base *b = &r->bases.at[i];
        if (strcmp(b->name, from + 6))
            continue;
        for (size_t k = 0; k < b->nlines; k++)
            vec_push(r->a, &r->text, b->lines[k]);
        return;
    }
    if (from)
        malformed(r, "no base of that name comes before");
}

static void add_words(struct reader *r, const char *words)
{
    struct text_case *c = &r->cases.at[r->cases.n - 1];
    if (c->nwords == sizeof c->words / sizeof *c->words)
        malformed(r, "too many words");
    c->words[c->nwords++] = words;
}

static void read_line(struct reader *r, const char *line, size_t n)
{
    const char *rest = line + (n > 1 ? 2 : n);
    size_t left = n > 1 ? n - 2 : 0;
    struct line bare = without_blanks(rest, left);
    if (n > 2 && !memcmp(line, "== ", 3)) {
        begin_text(r, arena_strndup(r->a, line + 3, n - 3));
    } else if (r->in == BASE) {
        insert(r, (struct line){line, n, false});
    } else if (r->in == CASE && n) {
        if (n > 1 && line[1] != ' ')
            malformed(r, "a blank follows the first character");
        switch (*line) {
        case '$':
            add_words(r, arena_strndup(r->a, rest, left));
            return;
        case '@':
            find(r, bare);
            r->cursor++;
            return;
        case '-':
            find(r, bare);
            drop(r);
            return;
        case '+':
            insert(r, (struct line){rest, left, false});
            return;
        case '\\':
            insert(r, unescaped(r, rest, left));
            return;
        case '*':
            insert(r, repeated(r, rest, left));
            return;
        case '>':
            r->wanted = arena_printf(r->a, "%s%.*s\n", r->wanted, (int)left, rest);
            return;
        }
        malformed(r, "no such kind of line");
    }
}

uint32_t cases_read(struct arena *a, const char *path, struct text_case **out)
{
    struct reader r = {.a = a, .path = path, .cursor = SIZE_MAX, .wanted = ""};
    const struct source *s = source_read(a, diag_new(a), path, (size_t)1 << 24);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (const char *at = s->text, *end; *at; at = end + (*end == '\n')) {
        end = at + strcspn(at, "\n");
        r.number++;
        read_line(&r, at, (size_t)(end - at));
    }
    end_text(&r);
    *out = r.cases.at;
    return (uint32_t)r.cases.n;
}

/* lines of what came out, each behind a mark */
static void put_marked(FILE *f, const char *text)
{
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");
        fprintf(f, "%s%.*s\n", n ? "> " : ">", (int)n, at);
        at += n + (at[n] == '\n');
    }
}

/* the file as it is, but for what its cases want */
static void update(struct arena *a, const char *path, const char *const *said)
{
    const struct source *s = source_read(a, diag_new(a), path, (size_t)1 << 24);
    FILE *f = fopen(path, "w");
    CU_ASSERT_FATAL(s && f);
    uint32_t next = 0;
    bool in_case = false;
    for (const char *at = s->text, *end; *at; at = end + (*end == '\n')) {
        end = at + strcspn(at, "\n");
        bool head = !strncmp(at, "== ", 3), base = !strncmp(at, "== base ", 8);
        if (in_case && head)
            put_marked(f, said[next++]);
        if (head && in_case)
            fputc('\n', f);
        in_case = head ? !base : in_case;
        if (!in_case || (*at != '>' && at != end))
            fprintf(f, "%.*s\n", (int)(end - at), at);
    }
    if (in_case)
        put_marked(f, said[next]);
    fclose(f);
}

uint32_t cases_check(struct arena *a, const char *path, const char *(*say)(struct arena *a, const struct text_case *c))
{
    struct text_case *all;
    uint32_t n = cases_read(a, path, &all);
    const char **said = ARENA_ARRAY(a, const char *, n + 1u);
    bool updates = getenv("UPDATE") != NULL;
    for (uint32_t i = 0; i < n; i++) {
        said[i] = say(a, &all[i]);
        bool same = !strcmp(said[i], all[i].wanted);
        if (!same && !updates)
            printf("\n    %s: %s: wanted\n%sgot\n%s", path, all[i].name, all[i].wanted, said[i]);
        CU_ASSERT(same || updates);
        CU_ASSERT(*said[i] != 0);
    }
    if (updates)
        update(a, path, said);
    return n;
}

static int is_cases(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 6 && !strcmp(e->d_name + n - 6, ".cases");
}

uint32_t cases_check_folder(struct arena *a, const char *folder, const char *prefix,
                            const char *(*say)(struct arena *a, const struct text_case *c))
{
    struct dirent **files;
    int n = scandir(folder, &files, is_cases, alphasort);
    uint32_t checked = 0;
    CU_ASSERT_FATAL(n > 0);
    for (int i = 0; i < n; i++) {
        if (!strncmp(files[i]->d_name, prefix, strlen(prefix)))
            checked += cases_check(a, arena_printf(a, "%s/%s", folder, files[i]->d_name), say);
        free(files[i]);
    }
    free(files);
    return checked;
}
