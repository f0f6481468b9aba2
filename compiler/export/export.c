#include "compiler/export/export.h"

#include <string.h>

/* the plan's nodes by name, one a line, in the order of its ranks: for --hostfile and SLURM_HOSTFILE */
static void write_hosts(struct export *x)
{
    const struct decision *d = &x->plan->decision;
    for (uint32_t i = 0; i < d->nnodes; i++)
        strbuf_printf(&x->text, "%s\n", x->plan->topo->nodes[d->nodes[i]].name);
}

static const struct form {
    const char *name;
    void (*write)(struct export *x);
} targets[] = {{"megatron", export_megatron}, {"torch-csv", export_torch_csv}, {"hosts", write_hosts}};

void export_refuse(struct export *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vec_push(x->arena, &x->refused, arena_vprintf(x->arena, fmt, ap));
    va_end(ap);
}

const char *export_targets(struct arena *a)
{
    const char *names = "";
    for (size_t i = 0; i < ARRAY_LEN(targets); i++)
        names = arena_printf(a, "%s%s%s", names, i ? ", " : "", targets[i].name);
    return names;
}

bool export_plan(struct export *x, const char *target)
{
    for (size_t i = 0; i < ARRAY_LEN(targets); i++)
        if (!strcmp(targets[i].name, target)) {
            targets[i].write(x);
            return true;
        }
    return false;
}

void export_free(struct export *x)
{
    strbuf_free(&x->text);
}
