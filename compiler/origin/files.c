/* Two plans' folders file by file, to the byte, and in words where they differ: keys of plan.json, lines of programs as
 * `llmc show --code` prints them, what ranks.bin says of a rank, lines of other texts. */

#include "compiler/origin/origin.h"

#include "compiler/support/strbuf.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct comparing {
    struct arena *arena;
    const struct plan *is, *wanted;
    struct origin *origin;
    uint32_t before; /* differences that others found */
    bool *seen;      /* files of `is` */
};

static void differ(struct comparing *c, const char *file, const char *message)
{
    origin_add(c->origin,
               &(struct difference){
                   .file = arena_strdup(c->arena, file), .role = NONE, .instruction = NONE, .message = message});
}

/* ---- texts ---- */

struct line {
    const char *text;
    int length;
    uint32_t number; /* from 0 */
};

static struct line next_line(const char **at, const char *end, uint32_t number)
{
    const char *stop = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
    stop = stop ? stop : end;
    struct line l = {*at, (int)(stop - *at), number};
    *at = stop < end ? stop + 1 : end;
    return l;
}

/* the first line that differs; false if none does */
static bool first_line(const char *x, size_t nx, const char *y, size_t ny, struct line *is, struct line *wanted)
{
    const char *xend = x + nx, *yend = y + ny;
    for (uint32_t n = 0; x < xend || y < yend; n++) {
        *is = next_line(&x, xend, n);
        *wanted = next_line(&y, yend, n);
        if (is->length != wanted->length || memcmp(is->text, wanted->text, (size_t)is->length) != 0)
            return true;
    }
    return false;
}

enum { SHOWN = 300 };
static int shown(const struct line *l)
{
    return l->length < SHOWN ? l->length : SHOWN;
}

static void text_differs(struct comparing *c, const struct plan_file *is, const struct plan_file *wanted)
{
    struct line x, y;
    if (first_line(is->bytes, is->size, wanted->bytes, wanted->size, &x, &y))
        differ(c, is->name,
               arena_printf(c->arena, "line %u is '%.*s', this compiler writes '%.*s'", x.number + 1, shown(&x), x.text,
                            shown(&y), y.text));
}

/* ---- programs ---- */

static char *program_text(const struct program *p, size_t *n, uint32_t *head)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    if (!f)
        return NULL;
    program_print(p, f);
    fclose(f);
    uint32_t lines = 0;
    for (size_t i = 0; i < *n; i++)
        lines += text[i] == '\n';
    *head = lines - p->ninsns; /* instructions come last, a line each */
    return text;
}

static const char *line_text(struct arena *a, const struct line *l)
{
    return l->length ? arena_printf(a, "'%.*s'", shown(l), l->text) : "its end";
}

static void program_differs(struct comparing *c, const char *file, const struct program *is,
                            const struct program *wanted)
{
    size_t n = 0, m = 0;
    uint32_t head = 0, other = 0;
    char *x = program_text(is, &n, &head), *y = program_text(wanted, &m, &other);
    struct line at = {0}, instead = {0};
    bool lines = x && y && first_line(x, n, y, m, &at, &instead),
         insn = lines && at.number >= head && at.number >= other;
    struct difference d = {.file = arena_strdup(c->arena, file), .role = is->role, .evaluation = is->evaluation};
    const char *role = arena_printf(c->arena, "role %u%s", is->role, is->evaluation ? " (evaluation)" : "");
    d.instruction = insn ? at.number - head : NONE;
    if (!lines)
        d.message = arena_printf(c->arena, "%s: the same program in other bytes than this compiler writes", role);
    else
        d.message = arena_printf(c->arena, "%s: %s is %s, this compiler makes %s", role,
                                 insn ? arena_printf(c->arena, "instruction %u", d.instruction)
                                      : arena_printf(c->arena, "line %u of its text", at.number + 1),
                                 line_text(c->arena, &at), line_text(c->arena, &instead));
    origin_add(c->origin, &d);
    free(x);
    free(y);
}

static const struct program *program_of(const struct plan *p, const char *file)
{
    bool evaluation = !strncmp(file, "programs/eval-", 14);
    unsigned long role = strtoul(file + strlen(evaluation ? "programs/eval-" : "programs/"), NULL, 10);
    return role >= p->nroles ? NULL : evaluation ? p->eval[role] : p->train[role];
}

/* ---- ranks ---- */

static void ranks_differ(struct comparing *c, const struct ranks *x, const struct ranks *y)
{
    struct arena *a = c->arena;
    const char *what = "other bytes than this compiler writes";
    if (x->nranks != y->nranks || x->ngroups != y->ngroups || x->nvalues != y->nvalues) {
        what = arena_printf(a, "%u ranks, %u groups, %u slot values; this compiler makes %u, %u, %u", x->nranks,
                            x->ngroups, x->nvalues, y->nranks, y->ngroups, y->nvalues);
        differ(c, "ranks.bin", what);
        return;
    }
    for (uint32_t r = 0; r < x->nranks; r++) {
        const struct rank_info *i = &x->ranks[r], *j = &y->ranks[r];
        if (i->role != j->role || i->node != j->node || i->gpu != j->gpu || i->slot != j->slot) {
            what = arena_printf(
                a, "rank %u has role %u on GPU %u of node %u, this compiler gives it role %u on GPU %u of node %u", r,
                i->role, i->gpu, i->node, j->role, j->gpu, j->node);
            differ(c, "ranks.bin", what);
            return;
        }
    }
    for (uint32_t v = 0; v < x->nvalues; v++)
        if (x->values[v] != y->values[v]) {
            what = arena_printf(a, "slot value %u is %llu, this compiler makes %llu", v,
                                (unsigned long long)x->values[v], (unsigned long long)y->values[v]);
            differ(c, "ranks.bin", what);
            return;
        }
    for (uint32_t g = 0; g < x->ngroups; g++)
        if (memcmp(&x->groups[g], &y->groups[g], sizeof x->groups[g]) != 0) {
            differ(c, "ranks.bin", arena_printf(a, "group %u has other members than this compiler gives it", g));
            return;
        }
    differ(c, "ranks.bin", what);
}

/* ---- plan.json ---- */

static void report_key(void *context, const char *key, const char *is, const char *wanted)
{
    struct comparing *c = context;
    struct difference d = {.file = "plan.json", .key = arena_strdup(c->arena, key), .role = NONE, .instruction = NONE};
    if (!is)
        d.message = arena_printf(c->arena, "%s is missing, this compiler makes it %.300s", key, wanted);
    else if (!wanted)
        d.message = arena_printf(c->arena, "%s is %.300s, and no key of this compiler's", key, is);
    else
        d.message = arena_printf(c->arena, "%s is %.300s, this compiler makes it %.300s", key, is, wanted);
    origin_add(c->origin, &d);
}

static void json_differs(struct comparing *c, const struct plan_file *is, const struct plan_file *wanted)
{
    uint32_t before = c->origin->ndifferences;
    json_t *x = json_loadb(is->bytes, is->size, JSON_REJECT_DUPLICATES, NULL),
           *y = json_loadb(wanted->bytes, wanted->size, 0, NULL);
    plan_json_compare(x, y, "", report_key, c);
    json_decref(x);
    json_decref(y);
    if (c->origin->ndifferences == before)
        text_differs(c, is, wanted); /* in its order or spacing */
}

/* ---- the folder ---- */

static void list_more(struct comparing *c)
{
    for (uint32_t i = 0; i < c->is->nfiles; i++)
        if (!c->seen[i])
            differ(c, c->is->files[i].name, "MANIFEST lists it, but it is no file of this plan");
}

static void describe(struct comparing *c, const struct plan_file *is, const struct plan_file *wanted)
{
    if (c->origin->ndifferences >= ORIGIN_MOST)
        return;
    if (!strcmp(is->name, "plan.json")) {
        json_differs(c, is, wanted);
    } else if (!strcmp(is->name, "ranks.bin")) {
        ranks_differ(c, c->is->ranks, c->wanted->ranks);
    } else if (!strncmp(is->name, "programs/", 9)) {
        const struct program *x = program_of(c->is, is->name), *y = program_of(c->wanted, is->name);
        if (x && y)
            program_differs(c, is->name, x, y);
    } else if (!strcmp(is->name, "MANIFEST")) {
        list_more(c);
        if (c->origin->ndifferences == c->before) /* not as a consequence of what others say */
            text_differs(c, is, wanted);
    } else {
        text_differs(c, is, wanted);
    }
}

static enum status compare_file(void *context, const struct plan_file *wanted, struct error *error)
{
    struct comparing *c = context;
    (void)error;
    for (uint32_t i = 0; i < c->is->nfiles; i++) {
        const struct plan_file *is = &c->is->files[i];
        if (strcmp(is->name, wanted->name) != 0)
            continue;
        c->seen[i] = true;
        if (is->size == wanted->size && !memcmp(is->bytes, wanted->bytes, is->size))
            c->origin->nfiles++;
        else
            describe(c, is, wanted);
        return STATUS_OK;
    }
    differ(c, wanted->name, "it is not in the folder");
    return STATUS_OK;
}

void origin_files(struct arena *a, const struct plan *p, const struct plan *q, struct origin *o)
{
    struct error error = {""};
    struct comparing c = {a, p, q, o, o->ndifferences, ARENA_ARRAY(a, bool, p->nfiles + 1)};
    if (plan_each_file(q, compare_file, &c, &error) != STATUS_OK)
        differ(&c, "plan.json", arena_strdup(a, error.text));
}
