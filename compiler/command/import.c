/* llmc import: a model from another program's file, and how many parameters it has. */

#include "compiler/command/command.h"

#include "compiler/import/import.h"
#include "compiler/model/sema.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* what a model is called by its file: config.json by its folder, another file by itself */
static const char *name_of(struct arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    if (strcmp(file, "config.json") != 0)
        return arena_strndup(a, file, strcspn(file, "."));
    const char *end = slash ? slash : path, *start = end;
    while (start > path && start[-1] != '/')
        start--;
    const char *name = arena_strndup(a, start, (size_t)(end - start));
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0 ? name : "";
}

/* are both the same file, by whatever name? */
static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

struct counted {
    uint64_t parameters, active, predict, index_bytes, index_parameters;
};

static void print_json(const struct counted *n, const char *text)
{
    struct strbuf b = {0};
    strbuf_json(&b, "{'schema': 'llmc-import-1', 'parameters': %lu, 'active': %lu, 'prediction': %lu", n->parameters,
                n->active, n->predict);
    if (n->index_bytes)
        strbuf_json(&b, ", 'index_bytes': %lu", n->index_bytes);
    if (n->index_parameters)
        strbuf_json(&b, ", 'index_parameters': %lu", n->index_parameters);
    strbuf_json(&b, ", 'model': %s}", text);
    puts(b.text);
    strbuf_free(&b);
}

static void print_count(const struct counted *n)
{
    fprintf(stderr, "%s parameters", units_show_commas(n->parameters).s);
    if (n->active != n->parameters)
        fprintf(stderr, ", %s of them active for a token", units_show_commas(n->active).s);
    if (n->predict)
        fprintf(stderr, "; prediction modules %s", units_show_commas(n->predict).s);
    fputc('\n', stderr);
    uint64_t all = n->parameters + n->predict;
    if (n->index_parameters)
        fprintf(stderr, "model.safetensors.index.json: %s, %s\n", units_show_commas(n->index_parameters).s,
                n->index_parameters == n->parameters || n->index_parameters == all ? "the same"
                                                                                   : "which is NOT the same");
    else if (n->index_bytes)
        fprintf(stderr, "model.safetensors.index.json: %s bytes, %.4f for each\n", units_show_commas(n->index_bytes).s,
                (double)n->index_bytes / (double)all);
}

enum status command_import(struct command *c)
{
    struct arena *a = c->arena;
    const char *path = c->options->args[0];
    struct counted n = {0};
    if (c->options->output && is_same(path, c->options->output))
        return command_fail(c, STATUS_USAGE, "import would write over the file that it reads: name another with -o");
    struct source *s = source_read(a, c->diag, path, (size_t)4 << 20);
    struct import_options o = {name_of(a, path), c->options->left_out, c->options->sets, c->options->nsets};
    char *text = s ? import_model(a, c->diag, s, &o) : NULL;
    if (!text)
        return command_diagnose(c, STATUS_INPUT);
    struct source *own = ARENA_NEW(a, struct source);
    *own = (struct source){c->options->output ? c->options->output : "model.llm", text, strlen(text), false};
    struct job *job = job_parse(a, c->diag, own, NULL, 0);
    import_index(a, c->diag, path, &n.index_bytes, &n.index_parameters);
    if (!job || diag_errors(c->diag))
        return command_diagnose(c, STATUS_INPUT);
    n.parameters = model_parameters(&job->model);
    n.active = model_active_parameters(&job->model);
    n.predict = model_predict_parameters(&job->model);
    enum status status = c->options->output ? command_write(c, c->options->output, text) : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    if (c->options->json)
        print_json(&n, text);
    else if (!c->options->output)
        fputs(text, stdout);
    if (!c->options->quiet)
        print_count(&n);
    return command_diagnose(c, STATUS_OK);
}
