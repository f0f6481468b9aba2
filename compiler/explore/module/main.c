/* What a page of `llmc explore` runs: the commands of llmc that predict, on files that the page holds in memory.
 *
 * The module is a program like any other: arguments, files, stdout, stderr and an exit code, by the calls of WASI's
 * preview 1.  Whatever differs from the command line is in this folder: no plan folders are opened, XML was read before
 * (xml.c), and sorting is glibc's (sort.c). */

#include "compiler/command/command.h"
#include "compiler/inspect/show.h"
#include "runtime/file.h"

#include <string.h>

enum status command_open(struct command *c, uint32_t arg, struct plan **plan)
{
    (void)arg, (void)plan;
    return command_fail(c, STATUS_USAGE, "there are no plan folders here");
}

/* a page is as wide as a terminal that says nothing */
struct show_options show_detect(FILE *out)
{
    (void)out;
    return (struct show_options){.width = 100, .rank = -1, .stage = -1};
}

int main(int argc, char **argv)
{
    struct options o;
    if (!cli_parse(argc, argv, &o) || !o.command)
        return STATUS_USAGE;
    struct command c = {.arena = arena_new(), .options = &o};
    c.diag = diag_new(c.arena);
    enum status s = STATUS_USAGE;
    if (!strcmp(o.command, "estimate"))
        s = command_estimate(&c);
    else if (!strcmp(o.command, "explain"))
        s = command_explain(&c);
    return file_flush_stdout() ? STATUS_WORLD : (int)s;
}
