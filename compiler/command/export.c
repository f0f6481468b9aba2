/* llmc export: a plan in another stack's words. */

#include "compiler/command/command.h"

#include "compiler/export/export.h"

enum status command_export(struct command *c)
{
    struct export x = {.arena = c->arena};
    struct plan *p;
    if (!c->options->to)
        return command_fail(c, STATUS_USAGE,
                            arena_printf(c->arena, "export wants --to FORM: %s", export_forms(c->arena)));
    TRY(command_open(c, 0, &p));
    if (!export_plan(&x, p, c->options->to))
        return command_fail(
            c, STATUS_USAGE,
            arena_printf(c->arena, "there is no form '%.60s'; there are %s", c->options->to, export_forms(c->arena)));
    for (size_t i = 0; i < x.refused.n; i++)
        fprintf(stderr, "llmc: %s cannot be told of %s\n", c->options->to, x.refused.at[i]);
    enum status status = x.refused.n ? STATUS_NO_PLAN
                                     : command_write(c, c->options->output ? c->options->output : "-", x.text.text);
    export_free(&x);
    return status;
}
