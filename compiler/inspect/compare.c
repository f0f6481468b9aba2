/* Two plans: what was decided otherwise, what comes of it, and how far that reaches into the programs.  What search and
 * compiler say of themselves is no part of a plan. */

#include "compiler/inspect/compare.h"

#include "compiler/inspect/traffic.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct difference {
    const char *key, *x, *y; /* x, y: values as JSON, NULL where there is none */
};
struct comparison {
    struct arena *arena;
    const struct plan *plan[2];
    VEC(struct difference) keys;
};

static void note(void *context, const char *key, const char *x, const char *y)
{
    struct comparison *c = context;
    vec_push(c->arena, &c->keys,
             ((struct difference){arena_strdup(c->arena, key), x ? arena_strdup(c->arena, x) : NULL,
                                  y ? arena_strdup(c->arena, y) : NULL}));
}

/* plan.json without what is a result */
static json_t *decided(const struct plan *p)
{
    struct strbuf b = {0};
    plan_json(p, false, &b);
    json_t *all = json_loadb(b.text, b.length, 0, NULL);
    strbuf_free(&b);
    json_object_del(all, "compiler");
    json_object_del(all, "predicted");
    json_object_del(all, "search");
    return all;
}

static void find_keys(struct comparison *c)
{
    json_t *x = decided(c->plan[0]), *y = decided(c->plan[1]);
    plan_json_compare(x, y, "", note, c);
    json_decref(x);
    json_decref(y);
}

/* ---- figures ---- */

struct figure {
    char name[64];
    double value[2];
};
typedef VEC(struct figure) figures;

static void add(struct comparison *c, figures *f, int side, const char *name, double value)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->at[i].name, name)) {
            f->at[i].value[side] += value;
            return;
        }
    struct figure new = {.value = {0}};
    snprintf(new.name, sizeof new.name, "%s", name);
    new.value[side] = value;
    vec_push(c->arena, f, new);
}

static void add_tiers(struct comparison *c, figures *f, int side)
{
    const struct plan *p = c->plan[side];
    for (uint32_t role = 0; role < p->nroles; role++)
        for (uint32_t i = 0; i < p->train[role]->ninsns; i++) {
            struct transfer t;
            char name[64];
            if (!transfer_of(p, role, i, &t))
                continue;
            snprintf(name, sizeof name, "bytes_over_%.40s", transfer_tier(p, &t));
            add(c, f, side, name, (double)t.bytes / p->nroles);
        }
}

static void find_figures(struct comparison *c, figures *f)
{
    for (int side = 0; side < 2; side++) {
        const struct plan *p = c->plan[side];
        const struct predicted v = plan_predicted(p);
        add(c, f, side, "step_time_s", v.step_time_s);
        add(c, f, side, "tokens_per_s_per_gpu", v.tokens_per_s_per_gpu);
        add(c, f, side, "mfu", v.mfu);
        add(c, f, side, "peak_memory_bytes", (double)v.peak_memory_bytes);
        for (int k = 0; k < NIDLE; k++) {
            char name[64];
            int n = snprintf(name, sizeof name, "idle_%s_s", idle_names[k]);
            for (int i = 0; i < n; i++)
                name[i] = strchr(" -", name[i]) ? '_' : name[i];
            add(c, f, side, name, 1e-9 * (double)p->timeline->idle_ns[k] / p->nroles);
        }
        add_tiers(c, f, side);
    }
}

/* ---- programs ---- */

/* Do the two plans have the same program for a pipeline rank, to the byte? */
static bool same_program(const struct program *x, const struct program *y)
{
    uint8_t *bytes[2] = {NULL, NULL};
    size_t n[2];
    bool same = program_encode(x, &bytes[0], &n[0]) == STATUS_OK && program_encode(y, &bytes[1], &n[1]) == STATUS_OK &&
                n[0] == n[1] && !memcmp(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
    return same;
}

static uint32_t count_programs(const struct comparison *c)
{
    uint32_t n[2] = {c->plan[0]->nroles, c->plan[1]->nroles}, differ = n[0] > n[1] ? n[0] - n[1] : n[1] - n[0];
    for (uint32_t r = 0; r < n[0] && r < n[1]; r++)
        differ += !same_program(c->plan[0]->train[r], c->plan[1]->train[r]);
    return differ;
}

static void find_instructions(struct comparison *c, figures *f)
{
    for (int side = 0; side < 2; side++)
        for (uint32_t r = 0; r < c->plan[side]->nroles; r++) {
            const struct program *p = c->plan[side]->train[r];
            for (uint32_t i = 0; i < p->ninsns; i++)
                add(c, f, side, isa_info(p->insns[i].op)->name, 1);
        }
}

/* ---- output ---- */

/* 0.1 of the first is +10 %; infinite where the first is 0 and the second is not */
static double change(const struct figure *f)
{
    return f->value[0] == f->value[1] ? 0 : f->value[0] != 0 ? f->value[1] / f->value[0] - 1 : INFINITY;
}

static void print_figures(const figures *f, bool all, FILE *out)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct figure *x = &f->at[i];
        if (!all && x->value[0] == x->value[1])
            continue;
        fprintf(out, "  %-28s %16.10g %16.10g", x->name, x->value[0], x->value[1]);
        if (isfinite(change(x)))
            fprintf(out, "  %+.2f %%", 100 * change(x));
        fputc('\n', out);
    }
}

static void figures_json(const figures *f, struct strbuf *b)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct figure *x = &f->at[i];
        strbuf_text(b, i ? ",\n  " : "\n  ");
        strbuf_json(b, "{'name': %s, 'first': %g, 'second': %g, 'change': %g}", x->name, x->value[0], x->value[1],
                    change(x));
    }
}

static void print_json(const struct comparison *c, const figures *f, const figures *n, uint32_t programs, FILE *out)
{
    struct strbuf b = {0};
    strbuf_text(&b, "{\"schema\": 1, \"differences\": [");
    for (size_t i = 0; i < c->keys.n; i++) {
        const struct difference *d = &c->keys.at[i];
        strbuf_text(&b, i ? ",\n  " : "\n  ");
        strbuf_json(&b, "{'key': %s, ", d->key);
        strbuf_printf(&b, "\"first\": %s, \"second\": %s}", d->x ? d->x : "null", d->y ? d->y : "null");
    }
    strbuf_text(&b, "],\n \"figures\": [");
    figures_json(f, &b);
    strbuf_json(&b, "],\n 'programs': %u, 'instructions': [", programs);
    figures_json(n, &b);
    strbuf_text(&b, "]}\n");
    fputs(b.text, out);
    strbuf_free(&b);
}

static void print_text(const struct comparison *c, const figures *f, const figures *n, uint32_t programs, FILE *out)
{
    fputs(c->keys.n ? "decided otherwise\n" : "the same inputs and decision\n", out);
    for (size_t i = 0; i < c->keys.n; i++) {
        const struct difference *d = &c->keys.at[i];
        fprintf(out, "  %-28s %16s %16s\n", d->key, d->x ? d->x : "none", d->y ? d->y : "none");
    }
    fputs("\nwhat comes of it: seconds and bytes of a mean rank\n", out);
    print_figures(f, true, out);
    fprintf(out,
            programs ? "\nprograms: those of %u pipeline ranks differ; instructions of all of them\n"
                     : "\nprograms: the same to the byte\n",
            programs);
    print_figures(n, false, out);
}

uint32_t compare_plans(struct arena *a, const struct plan *x, const struct plan *y, bool json, FILE *out)
{
    struct comparison c = {.arena = a, .plan = {x, y}};
    figures f = {0}, n = {0};
    find_keys(&c);
    find_figures(&c, &f);
    find_instructions(&c, &n);
    uint32_t programs = count_programs(&c);
    (json ? print_json : print_text)(&c, &f, &n, programs, out);
    return (uint32_t)c.keys.n + programs;
}
