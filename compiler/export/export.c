#include "compiler/export/export.h"

#include "compiler/target/target.h"

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
    void (*try_job)(struct export *x); /* what of it the job decides; NULL: nothing */
} targets[] = {{"megatron", export_megatron, export_megatron_job},
               {"torch-csv", export_torch_csv, NULL},
               {"hosts", write_hosts, NULL}};

static const struct form *form_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(targets); i++)
        if (!strcmp(targets[i].name, name))
            return &targets[i];
    return NULL;
}

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
    const struct form *form = form_of(target);
    if (form)
        form->write(x);
    return form;
}

/* the writer of its launch files; NULL: it has none */
static const struct form *launcher(const struct job *job)
{
    const struct target *t = job->wishes.target;
    return t && t->launch ? form_of(t->launch) : NULL;
}

void export_try_job(struct export *x, const struct job *job)
{
    const struct form *form = launcher(job);
    const struct plan only = {.job = (struct job *)(uintptr_t)job};
    x->plan = &only;
    if (form && form->try_job)
        form->try_job(x);
    x->plan = NULL;
}

void export_launch(struct export *x, struct plan *p)
{
    static const char *const names[] = {PLAN_LAUNCH, PLAN_HOSTS};
    const struct form *form = launcher(p->job), *hosts = form_of("hosts");
    if (!form)
        return;
    struct plan_file *files = ARENA_ARRAY(x->arena, struct plan_file, ARRAY_LEN(names));
    x->plan = p;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (i ? hosts : form)->write(x);
        files[i] = (struct plan_file){names[i], arena_strndup(x->arena, x->text.text, x->text.length), x->text.length};
        strbuf_free(&x->text);
        x->text = (struct strbuf){0};
    }
    p->launch = files;
    p->nlaunch = ARRAY_LEN(names);
}

void export_free(struct export *x)
{
    strbuf_free(&x->text);
}
