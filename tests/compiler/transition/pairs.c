/* Drawing pairs: a job from one of three generators, read twice, since each plan has wishes of its own; then a cluster and a
 * layout for each.  Once in six times the second cluster lacks a node that is lost. */

#include "tests/compiler/transition/pairs.h"

#include "compiler/model/sema.h"
#include "tests/compiler/random_layout.h"
#include "tests/compiler/random_model.h"
#include "tests/compiler/random_plan.h"

#include <CUnit/CUnit.h>

struct topo *pair_hosts(struct arena *a, uint32_t nodes, uint32_t gpus)
{
    struct diag *d = diag_new(a);
    struct source *s = ARENA_NEW(a, struct source);
    char *text = arena_printf(
        a,
        "<?xml version=\"1.0\"?>\n<cluster version=\"1\" name=\"hosts\">\n"
        "  <node-type id=\"host\" gpus=\"%u\" host-bandwidth=\"2GB/s\">\n"
        "    <gpu model=\"cpu\" memory=\"2GiB\" memory-bandwidth=\"5GB/s\">"
        "<peak dtype=\"fp32\" rate=\"20GFLOP/s\"/><peak dtype=\"bf16\" rate=\"20GFLOP/s\"/></gpu>\n"
        "    <scale-up kind=\"none\"/>\n    <nic count=\"1\" bandwidth=\"10Gb/s\"/>\n  </node-type>\n"
        "  <nodes type=\"host\" count=\"%u\"/>\n  <fabric><tier name=\"net\" span=\"all\"/></fabric>\n</cluster>\n",
        gpus, nodes);
    *s = (struct source){"hosts.xml", text, strlen(text), false};
    struct topo *t = topo_parse(a, d, s, NULL);
    if (!t)
        diag_print(d, stderr, false);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

/* the same job for equal seeds */
static struct job *draw_job(struct arena *a, uint64_t seed)
{
    uint64_t state = seed * 0x2545f4914f6cdd1du + 7;
    if (seed % 4 == 0)
        return random_job(a, &state);
    return text_job(a, seed % 4 == 1 ? random_model(a, &state) : layout_models[random_below(&state, layout_nmodels)].text);
}

static struct plan *draw_plan(struct arena *a, uint64_t *state, struct job *job, struct topo *topo, uint32_t ranks,
                              const char **what)
{
    struct decision d, alone;
    const char *why = "";
    layout_wishes(state, job);
    if (random_below(state, 8) == 0 || ranks == 1) {
        alone = layout_alone(a, job, topo);
        if (!decision_legal(a, job, topo, &alone, &why) || !decision_emittable(a, job, &alone, &why))
            return NULL;
        d = alone;
    } else if (!layout_draw(a, state, job, topo, ranks, &d)) {
        return NULL;
    }
    *what = decision_text(a, job, &d);
    return compile_decision(a, job, topo, &d, &(struct compile_options){0}, &why);
}

bool pair_draw(struct arena *a, uint64_t seed, struct pair *out)
{
    static const uint32_t nodes_of[] = {1, 1, 2, 2, 4, 4};
    uint64_t state = seed + ((uint64_t)3 << 40);
    uint32_t nodes = nodes_of[random_below(&state, 6)], gpus = PAIR_RANKS / nodes;
    const char *what[2] = {"", ""};
    *out = (struct pair){.lost = NONE};
    struct job *job[2] = {draw_job(a, seed), draw_job(a, seed)};
    uint32_t less = nodes;
    if (nodes > 1 && random_below(&state, 3) == 0) {
        out->lost = random_below(&state, nodes);
        less = nodes - 1;
    }
    out->from = draw_plan(a, &state, job[0], pair_hosts(a, nodes, gpus), nodes * gpus, &what[0]);
    out->to = draw_plan(a, &state, job[1], pair_hosts(a, less, gpus), less * gpus, &what[1]);
    out->what = arena_printf(a, "seed %llu%s: %s -> %s", (unsigned long long)seed, out->lost == NONE ? "" : " (a node lost)",
                             what[0], what[1]);
    if (out->from && out->to)
        return true;
    pair_close(out);
    return false;
}

void pair_close(struct pair *p)
{
    if (p->from)
        plan_close(p->from);
    if (p->to)
        plan_close(p->to);
    p->from = p->to = NULL;
}
