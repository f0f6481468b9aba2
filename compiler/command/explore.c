/* `llmc explore`: the page in which settings of a job move. */

#include "compiler/command/command.h"

#include "compiler/explore/explore.h"
#include "runtime/file.h"

#include <sys/stat.h>

static bool is_same_file(const char *path, const char *other)
{
    struct stat a, b;
    return !stat(path, &a) && !stat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum status command_explore(struct command *c)
{
    const struct options *o = c->options;
    struct explore_page page = {
        .model = o->args[0], .cluster = o->args[1], .nsets = o->nsets, .sets = (const char *const *)o->sets};
    struct job *job;
    struct topo *topo;
    if (!o->output)
        return command_fail(c, STATUS_USAGE, "explore wants -o FILE");
    if (!explore_has_module())
        return command_fail(c, STATUS_WORLD,
                            "this llmc was built without what its pages run: install clang, lld, wasi-libc and "
                            "libclang-rt-14-dev-wasm32 (tests/tools/deps.sh --tests does) and build it again");
    TRY(command_read(c, &job, &topo));
    if (is_same_file(o->args[0], o->output) || is_same_file(o->args[1], o->output))
        return command_fail(c, STATUS_WORLD, arena_printf(c->arena, "%s: it is what the page is made of", o->output));
    page.job = job;
    page.topo = topo;
    struct file_out out;
    const char *why = file_create(o->output, &out);
    if (!why) {
        explore_write(&page, out.stream);
        why = file_publish(&out);
    }
    if (why)
        return command_fail(c, STATUS_WORLD, arena_printf(c->arena, "%s: %s", o->output, why));
    return command_diagnose(c, STATUS_OK);
}
