/* From the tree to the checked job: the blocks in their order, the --set overrides, and the entry points.
 *
 * All three blocks are checked even after errors, so that one run tells everything; the job is only handed
 * out when there were none. */

#include "compiler/model/sema.h"

#include "compiler/model/check.h"
#include "compiler/model/parse.h"

#include <stdlib.h>
#include <string.h>

/* the override as a source of its own: `tp=8` reads `tp = 8`, `batch=2Mi tokens` reads `batch 2Mi tokens`,
 * `tp<=8`, `tp in [1, 2]` read as they are, and a text has its quotes again, which shells take away */
static struct source *set_source(struct arena *a, const struct word *row, const char *key, const char *value)
{
    static const char *const limits[] = {"memory", "step_time", "finish"};
    value += strspn(value, " ");
    bool relation = (row->takes & TAKES_WISH) && !strchr("<>=", *value) && strncmp(value, "in ", 3) != 0 &&
                    strncmp(value, "in[", 3) != 0;
    for (size_t i = 0; i < ARRAY_LEN(limits); i++)
        relation = relation || (!strcmp(key, limits[i]) && !strchr("<>=", *value));
    bool bare = row->takes == TAKES_STRING && !strchr(value, '"') && strpbrk(value, "-*|. ");
    const char *quote = bare ? "\"" : "";
    struct source *s = ARENA_NEW(a, struct source);
    s->name = "--set";
    s->text = arena_printf(a, "%s %s%s%s%s", key, !relation ? "" : *value == '[' ? "in " : "= ", quote, value, quote);
    s->size = strlen(s->text);
    return s;
}

static struct stmt *sema_set(struct check *c, const char *set)
{
    const char *equals = strchr(set, '=');
    if (equals && equals > set && strchr("<>", equals[-1])) /* tp<=8 */
        equals--;
    size_t word = strcspn(set, " =<>");
    const char *rest = set + word + strspn(set + word, " ");
    if (!strncmp(rest, "in ", 3) || !strncmp(rest, "in[", 3)) /* tp in [1, 2] */
        equals = rest;
    size_t n = equals ? (size_t)(equals - set) : strlen(set);
    while (equals && n && set[n - 1] == ' ')
        n--;
    char *key = arena_strndup(c->arena, set, n);
    struct source *whole = ARENA_NEW(c->arena, struct source);
    *whole = (struct source){.name = "--set", .text = arena_strdup(c->arena, set), .size = strlen(set)};
    struct span at = {whole, 0, (uint32_t)n};
    const struct word *row = vocab_find(SCOPE_plan, key);
    if (!row)
        row = vocab_find(SCOPE_train, key);
    if (!equals || !equals[1]) {
        diag_error(c->diag, at, "form", "an override is written KEY=VALUE");
        return NULL;
    }
    if (!row) {
        const char *names[64];
        size_t k = vocab_names(SCOPE_plan, names, 40);
        k += vocab_names(SCOPE_train, names + k, 64 - k);
        check_unknown(c, at, "word", key, names, diag_nearest(key, names, k) ? k : 0);
        return NULL;
    }
    struct ast *tree = parse_statements(c->arena, c->diag, set_source(c->arena, row, key, equals + (*equals == '=')));
    if (!tree)
        return NULL;
    if (!tree->stmts || tree->stmts->next || tree->stmts->let || tree->stmts->has_block ||
        strcmp(tree->stmts->word, key) != 0) {
        diag_error(c->diag, at, "form", "an override is one statement, KEY=VALUE");
        return NULL;
    }
    return ast_stmt_copy(c->arena, tree->stmts);
}

/* the last override of a word counts */
static void sema_sets(struct check *c, const char *const *sets, uint32_t nsets)
{
    struct ast_stmt_list list = {0};
    for (uint32_t i = 0; i < nsets; i++) {
        struct stmt *s = sema_set(c, sets[i]), *before = NULL;
        for (struct stmt *at = list.head; s && at; before = at, at = at->next)
            if (check_same_wish(at, s)) {
                if (before)
                    before->next = at->next;
                else
                    list.head = at->next;
                list.tail = at->next ? list.tail : before;
                break;
            }
        list = ast_stmt_add(list, s);
    }
    c->sets = list.head;
}

static int by_position(const void *left, const void *right)
{
    const struct plan_only *a = left, *b = right;
    bool apart = a->span.source != b->span.source;
    if (apart)
        return strcmp(a->span.source->name, b->span.source->name) < 0 ? 1 : -1; /* the file before --set */
    return a->span.start < b->span.start ? -1 : a->span.start > b->span.start;
}

static const struct entry *block_of(struct check *c, const struct block *file, const char *word)
{
    for (size_t i = 0; i < file->n; i++)
        if (!strcmp(file->entries[i].row->name, word)) {
            const struct entry *e = &file->entries[i];
            if (!e->stmt->has_block)
                diag_error(c->diag, e->stmt->word_span, "form", "'%s' needs a block in { }", word);
            return e;
        }
    return NULL;
}

static struct job *check_tree(struct arena *a, struct diag *d, const struct ast *tree, const char *const *sets,
                              uint32_t nsets)
{
    int before = diag_errors(d);
    struct check c = {.arena = a, .diag = d, .job = ARENA_NEW(a, struct job)};
    c.job->source = tree->source;
    sema_sets(&c, sets, nsets);
    struct block file = check_block(&c, SCOPE_file, tree->stmts, NULL, tree->version_span);
    const struct entry *model = block_of(&c, &file, "model"), *train = block_of(&c, &file, "train"),
                       *plan = block_of(&c, &file, "plan");
    if (model)
        sema_model(&c, model->stmt, model->env);
    if (train)
        sema_train(&c, train->stmt, train->env);
    if (model && train)
        sema_plan(&c, plan ? plan->stmt : NULL, plan ? plan->env : file.env);
    if (c.plan_only.n)
        qsort(c.plan_only.at, c.plan_only.n, sizeof *c.plan_only.at, by_position);
    c.job->plan_only = c.plan_only.at;
    c.job->nplan_only = (uint32_t)c.plan_only.n;
    return diag_errors(d) > before ? NULL : c.job;
}

struct job *job_parse(struct arena *a, struct diag *d, struct source *source, const char *const *sets, uint32_t nsets)
{
    struct ast *tree = parse_source(a, d, source);
    return tree ? check_tree(a, d, tree, sets, nsets) : NULL;
}

struct job *job_read(struct arena *a, struct diag *d, const char *path, const char *const *sets, uint32_t nsets)
{
    struct source *s = source_read(a, d, path, PARSE_SIZE_MAX);
    return s ? job_parse(a, d, s, sets, nsets) : NULL;
}
