/* Forms by name, the launch files of targets, and what all forms share. */

#include "compiler/export/export.h"

#include "compiler/model/means.h"

#include <assert.h>
#include <string.h>

static const struct form {
    const char *name, *meaning;
    void (*write)(struct export *x);
    void (*try_job)(struct export *x);
} forms[] = {
#define FORM(name, writer, job, meaning) {name, meaning, export_##writer, job},
#include "compiler/export/forms.def"
};

static const struct form *form_of(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        if (!strcmp(forms[i].name, name))
            return &forms[i];
    return NULL;
}

const char *export_forms(struct arena *a)
{
    const char *names = "";
    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        names = arena_printf(a, "%s%s%s", names, i ? ", " : "", forms[i].name);
    return names;
}

void export_help(FILE *out)
{
    enum { INDENT = 20, WIDTH = 110 };
    fputs("\nforms:\n", out);
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct strbuf line = {0};
        strbuf_printf(&line, "%-*s", INDENT, "");
        memcpy(line.text + 2, forms[i].name, strlen(forms[i].name));
        strbuf_wrap(&line, forms[i].meaning, INDENT, INDENT, WIDTH);
        fprintf(out, "%s\n", line.text);
        strbuf_free(&line);
    }
}

bool export_plan(struct export *x, const struct plan *p, const char *name)
{
    const struct form *form = form_of(name);
    x->plan = p;
    x->job = p->job;
    if (form)
        form->write(x);
    return form;
}

void export_free(struct export *x)
{
    strbuf_free(&x->text);
}

/* ---- for forms ---- */

void export_refuse(struct export *x, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const char *sentence = arena_vprintf(x->arena, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < x->refused.n; i++)
        if (!strcmp(x->refused.at[i], sentence))
            return;
    vec_push(x->arena, &x->refused, sentence);
}

void export_refuse_lacking(struct export *x, const char *name, const char *text)
{
    enum { MOST = 64 };
    const char *lacks[MOST], *why;
    unsigned line;
    const struct target *t = text ? target_parse(x->arena, name, text, &line, &why) : target_find(x->arena, name);
    assert(t); /* a form's own text */
    uint32_t n = means_lacking(x->arena, t, x->job, &x->plan->decision, lacks, MOST);
    for (uint32_t i = 0; i < n; i++)
        export_refuse(x, "%s", lacks[i]);
}

uint32_t export_gpus_per_node(struct export *x)
{
    const struct decision *d = &x->plan->decision;
    if (d->nnodes && d->gpus_used % d->nnodes == 0)
        return d->gpus_used / d->nnodes;
    export_refuse(x, "nodes with unlike numbers of GPUs");
    return 0;
}

uint32_t export_fsdp_shard(const struct decision *d)
{
    return d->zero >= 2 && d->dp * d->cp > 1 ? d->shard : d->cp;
}

const char *export_cluster(const struct export *x)
{
    const char *name = x->plan->topo->name;
    return name && *name ? name : "the cluster";
}

const char *export_real(struct export *x, double value)
{
    struct strbuf number = {0};
    strbuf_json_number(&number, value);
    const char *text = arena_strdup(x->arena, number.text);
    strbuf_free(&number);
    return text;
}

/* ---- launch files ---- */

/* by the form that a target's file names: the script first */
static const struct launch {
    const char *form, *file;
    void (*write)(struct export *x); /* writes nothing where the plan needs no such file */
} launches[] = {{"megatron", PLAN_LAUNCH, export_megatron},
                {"megatron", PLAN_HOSTS, export_hosts},
                {"torchtitan", PLAN_LAUNCH, export_torchtitan_launch},
                {"torchtitan", PLAN_TITAN, export_torchtitan},
                {"torchtitan", PLAN_SCHEDULE, export_torchtitan_csv},
                {"torchtitan", PLAN_HOSTS, export_hosts}};

/* the form of its launch files; NULL: it has none */
static const struct form *launcher(const struct job *job)
{
    const struct target *t = job->wishes.target;
    return t && t->launch ? form_of(t->launch) : NULL;
}

void export_try_job(struct export *x, const struct job *job)
{
    const struct form *form = launcher(job);
    x->job = job;
    if (form && form->try_job)
        form->try_job(x);
}

void export_launch(struct export *x, struct plan *p)
{
    const struct form *form = launcher(p->job);
    if (!form)
        return;
    struct plan_file *files = ARENA_ARRAY(x->arena, struct plan_file, ARRAY_LEN(launches));
    x->plan = p;
    x->job = p->job;
    p->nlaunch = 0;
    for (size_t i = 0; i < ARRAY_LEN(launches); i++) {
        const struct launch *l = &launches[i];
        if (strcmp(l->form, form->name) != 0)
            continue;
        l->write(x);
        if (x->text.length)
            files[p->nlaunch++] = (struct plan_file){l->file, arena_strndup(x->arena, x->text.text, x->text.length),
                                                     x->text.length};
        strbuf_free(&x->text);
        x->text = (struct strbuf){0};
    }
    p->launch = files;
}
