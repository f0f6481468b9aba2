/* llmc topo import: a cluster file from other programs' files. */

#include "compiler/command/command.h"

#include "compiler/import/cluster.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/units.h"
#include "compiler/topology/topo.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* a path's folder with its '/', "" for the current one */
static const char *folder_of(struct arena *a, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : "";
}

/* The file as seen from a folder, or NULL where it lies elsewhere or its name cannot stand in an href. */
static const char *seen_from(struct arena *a, const char *folder, const char *path)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (!realpath(*folder ? folder : ".", from) || !realpath(path, to))
        return NULL;
    size_t n = strcmp(from, "/") ? strlen(from) : 0;
    if (strncmp(from, to, n) != 0 || to[n] != '/' || strpbrk(to + n + 1, ":\\"))
        return NULL;
    return arena_strdup(a, to + n + 1);
}

static bool find_format(const char *word, enum cluster_format *format)
{
    for (uint32_t i = 0; i < NCLUSTER_FORMATS; i++)
        if (!strcmp(cluster_formats[i], word)) {
            *format = (enum cluster_format)i;
            return true;
        }
    return false;
}

static enum status unknown_format(struct command *c, const char *word)
{
    struct strbuf b = {0};
    const char *near = diag_nearest(word, cluster_formats, NCLUSTER_FORMATS);
    strbuf_printf(&b, "topo import knows no format '%s'", word);
    if (near)
        strbuf_printf(&b, "; did you mean '%s'?", near);
    for (uint32_t i = 0; !near && i < NCLUSTER_FORMATS; i++)
        strbuf_printf(&b, "%s%s", i ? ", " : "; it knows ", cluster_formats[i]);
    const char *message = arena_strdup(c->arena, b.text);
    strbuf_free(&b);
    return command_fail(c, STATUS_USAGE, message);
}

static void print_json(const struct topo *t, const char *text)
{
    struct strbuf b = {0};
    strbuf_json(&b, "{'schema': 'llmc-topo-import-1', 'nodes': %u, 'gpus': %lu, 'cluster': %s}", t->nnodes, t->gpus,
                text);
    puts(b.text);
    strbuf_free(&b);
}

enum status command_topo_import(struct command *c)
{
    const struct options *o = c->options;
    struct cluster_file files[sizeof o->args / sizeof *o->args];
    size_t nfiles = o->nargs / 2;
    const char *folder = o->output ? folder_of(c->arena, o->output) : "";
    if (o->nargs % 2)
        return command_fail(c, STATUS_USAGE, "topo import wants a format before each file");
    for (size_t i = 0; i < nfiles; i++) {
        if (!find_format(o->args[2 * i], &files[i].format))
            return unknown_format(c, o->args[2 * i]);
        files[i].source = source_read(c->arena, c->diag, o->args[2 * i + 1], CLUSTER_IMPORT_MAX);
        files[i].href = seen_from(c->arena, folder, o->args[2 * i + 1]);
    }
    if (diag_errors(c->diag))
        return command_diagnose(c, STATUS_INPUT);
    struct topo *t = NULL;
    const char *text = cluster_import(c->arena, c->diag, files, nfiles, o->sets, o->nsets, folder, &t);
    if (!text)
        return command_diagnose(c, STATUS_INPUT);
    if (o->output)
        TRY(command_write(c, o->output, text));
    if (o->json)
        print_json(t, text);
    else if (!o->output)
        fputs(text, stdout);
    if (!o->quiet)
        fprintf(stderr, "%s of %s; 'llmc topo show' prints what was understood\n",
                units_show_count(t->nnodes, "node").s, units_show_count(t->types[0].gpus, "GPU").s);
    return command_diagnose(c, STATUS_OK);
}
