/* Commands about one file, or none: topo, tokens, fmt, isa, version, help. */

#include "compiler/command/command.h"

#include "compiler/export/export.h"
#include "compiler/inspect/manual.h"
#include "compiler/inspect/tokens.h"
#include "compiler/model/fmt.h"
#include "compiler/model/vocab.h"
#include "compiler/target/target.h"
#include "compiler/topology/topo.h"
#include "compiler/topology/topo_catalogue.h"
#include "compiler/topology/topo_rules.h"
#include "runtime/file.h"

#include <string.h>

enum status command_write(struct command *c, const char *path, const char *text)
{
    struct file_out out;
    const char *why = file_create(path, &out);
    if (!why) {
        fputs(text, out.stream);
        why = file_publish(&out);
    }
    return why ? command_fail(c, STATUS_WORLD, arena_printf(c->arena, "%s: %s", path, why)) : STATUS_OK;
}

enum status command_topo_show(struct command *c)
{
    struct topo *t = topo_read(c->arena, c->diag, c->options->args[0]);
    if (t && c->options->json)
        topo_print_json(t, stdout);
    else if (t)
        topo_print(t, stdout);
    return command_diagnose(c, t ? STATUS_OK : STATUS_INPUT);
}

enum status command_tokens(struct command *c)
{
    struct error error;
    if (!c->options->output)
        return command_fail(c, STATUS_USAGE, "tokens wants -o OUT");
    uint64_t n = 0;
    enum status s = tokens_write(c->options->args[0], c->options->output, true, &n, &error);
    if (s != STATUS_OK)
        return command_fail(c, s, error.text);
    if (!c->options->quiet)
        fprintf(stderr, "%s: %llu tokens\n", c->options->output, (unsigned long long)n);
    return STATUS_OK;
}

enum status command_fmt(struct command *c)
{
    struct source *s = source_read(c->arena, c->diag, c->options->args[0], (size_t)1 << 20);
    char *text = s ? fmt_text(c->arena, c->diag, s) : NULL;
    if (text)
        fputs(text, stdout);
    return command_diagnose(c, text ? STATUS_OK : STATUS_INPUT);
}

enum status command_isa(struct command *c)
{
    const char *name = c->options->nargs ? c->options->args[0] : NULL;
    bool found = c->options->json ? manual_isa_json(stdout, name) : manual_isa(stdout, name);
    if (found)
        return STATUS_OK;
    return command_fail(c, STATUS_USAGE,
                        arena_printf(c->arena, "no instruction is called '%s'; llmc isa lists them", name));
}

enum status command_version(struct command *c)
{
    (void)c;
    puts("llmc " LLMC_VERSION "\nLicence: see LICENSE in the source; no warranty, to the extent permitted by law.");
    return STATUS_OK;
}

enum status command_help(struct command *c)
{
    const char *topic = c->options->nargs ? c->options->args[0] : NULL;
    if (c->options->nargs == 2)
        topic = arena_printf(c->arena, "%s %s", topic, c->options->args[1]);
    static const struct {
        const char *topic;
        void (*print)(FILE *out);
    } topics[] = {
        {"language", help_language}, {"cluster", topo_help}, {"gpus", topo_catalogue_print}, {"target", target_help}};
    for (size_t i = 0; topic && i < sizeof topics / sizeof *topics; i++)
        if (!strcmp(topic, topics[i].topic)) {
            topics[i].print(stdout);
            return STATUS_OK;
        }
    if (c->options->nargs == 2 && !strcmp(c->options->args[0], "target") && target_help_of(stdout, c->options->args[1]))
        return STATUS_OK;
    if (topic && !cli_knows(topic) && help_word(stdout, topic))
        return STATUS_OK;
    return command_usage(stdout, topic) ? STATUS_OK : STATUS_USAGE;
}

bool command_usage(FILE *out, const char *command)
{
    if (!cli_help(out, command))
        return false;
    if (command && !strcmp(command, "export"))
        export_help(out);
    return true;
}
