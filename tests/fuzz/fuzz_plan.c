/* What llmc reads of a plan's folder, or of a file that a wish names: by the first byte a decision of plan.json, for a
 * model with experts on a cluster of two nodes, or a schedule.  A decision that is legal must survive its own printing;
 * a schedule must, too, and have an order. */

#include "compiler/model/decision.h"
#include "compiler/model/sema.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/strbuf.h"
#include "tests/fuzz/common.h"

#include <stdlib.h>
#include <string.h>

static const char model[] = "llmc 1\nmodel m { vocab 256; width 32; norm rmsnorm; embed tokens\n"
                            "repeat 2 { layer { attn gqa(heads=4, kv=2, rope=10_000); ffn swiglu(64) } }\n"
                            "repeat 2 { layer { attn gqa(heads=4, kv=2, rope=10_000)\n"
                            "moe swiglu(32) { experts 4; active 2; router softmax } } }\nhead untied }\n"
                            "train { sequence 64; batch 16 sequences; precision fp32; optimizer adamw(lr=1e-3) }\n";
static const char cluster[] =
    "<cluster version='1'><node-type id='x' gpus='8'><gpu model='H100-SXM'/>"
    "<scale-up kind='nvswitch' bandwidth='450GB/s'/><nic count='8' bandwidth='400Gb/s'/>"
    "</node-type><nodes type='x' count='2'/><fabric><tier name='a' span='all'/></fabric></cluster>";

struct inputs {
    struct job *job;
    struct topo *topo;
};

static const struct inputs *inputs(void)
{
    static struct inputs i;
    static struct source m = {.name = "m.llm", .text = model, .size = sizeof model - 1},
                         c = {.name = "c.xml", .text = cluster, .size = sizeof cluster - 1};
    if (i.job)
        return &i;
    struct arena *a = arena_new(); /* stays */
    struct diag *d = diag_new(a);
    i.job = job_parse(a, d, &m, NULL, 0);
    i.topo = topo_parse(a, d, &c, NULL);
    require(i.job && i.topo);
    job_emits(a, i.job);
    return &i;
}

static void read_decision(struct arena *a, const char *text, size_t n)
{
    const struct inputs *i = inputs();
    const char *why = NULL;
    struct decision d, again;
    struct strbuf out = {0}, twice = {0};
    if (!decision_from_json(a, text, n, i->job, i->topo, &d, &why) || !decision_legal(a, i->job, i->topo, &d, &why)) {
        require(why && *why);
        return;
    }
    decision_json(i->job, &d, &out);
    require(decision_from_json(a, out.text, out.length, i->job, i->topo, &again, &why));
    decision_json(i->job, &again, &twice);
    require(out.length == twice.length && !memcmp(out.text, twice.text, out.length));
    strbuf_free(&out);
    strbuf_free(&twice);
    decision_text(a, i->job, &d);
}

static char *print(const struct schedule *s)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    schedule_print(s, f);
    fclose(f);
    return text;
}

static void read_schedule(struct arena *a, const char *text, size_t n)
{
    const char *why = NULL;
    uint32_t nsteps;
    struct schedule *s = schedule_parse(a, text, n, &why);
    require(s || (why && *why));
    if (!s)
        return;
    require(schedule_order(a, s, &nsteps, &why) != NULL);
    char *once = print(s);
    s = schedule_parse(a, once, strlen(once), &why);
    require(s != NULL);
    char *twice = print(s);
    require(!strcmp(once, twice));
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    struct arena *a = empty_arena();
    char *text = arena_strndup(a, (const char *)data + 1, size - 1);
    if (data[0] % 2)
        read_schedule(a, text, size - 1);
    else
        read_decision(a, text, size - 1);
    return 0;
}
