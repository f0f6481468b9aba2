/* llmc's command line: which command runs, on which terminal. */

#include "compiler/command/command.h"
#include "runtime/file.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND(name, function) {name, command_##function},
static const struct {
    const char *name;
    enum status (*run)(struct command *c);
} commands[] = {COMMANDS(COMMAND)};
#undef COMMAND

/* Keep freed memory in the process: what one pass frees the next one allocates, and pages returned to the kernel
 * would have to be zeroed again, which costs about ten times as much as reusing them. */
static void keep_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

int main(int argc, char **argv)
{
    struct options o;
    if (!cli_parse(argc, argv, &o))
        return STATUS_USAGE;
    keep_memory();
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    struct command c = {.arena = arena_new(), .options = &o};
    c.diag = diag_new(c.arena);
    diag_show_progress(c.diag, !o.quiet && isatty(STDERR_FILENO) && !getenv("CI"));
    c.colour = isatty(STDERR_FILENO) && !(no_colour && *no_colour) && !(term && !strcmp(term, "dumb"));
    enum status s = STATUS_USAGE;
    if (o.version)
        s = command_version(&c);
    else if (o.help || !o.command)
        command_usage(o.help ? stdout : stderr, o.command), s = o.help ? STATUS_OK : STATUS_USAGE;
    else
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
            if (!strcmp(commands[i].name, o.command))
                s = commands[i].run(&c);
    const char *lost = file_flush_stdout();
    if (lost)
        fprintf(stderr, "llmc: stdout: %s\n", lost);
    if (lost && s == STATUS_OK)
        s = STATUS_WORLD;
    for (size_t i = 0; i < sizeof c.plans / sizeof *c.plans; i++)
        if (c.plans[i])
            plan_close(c.plans[i]);
    arena_free(c.arena);
    return (int)s;
}
