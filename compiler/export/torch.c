/* What torch's launcher and pipelines read: the plan's nodes, and the pipeline's actions as a CSV file, a row for each
 * pipeline rank, by torch.distributed.pipelining's _load_csv(), format "compute_only".  Degrees, stages' layers and
 * everything within a stage are not in such files. */

#include "compiler/export/export.h"

#include "compiler/schedule/schedule.h"

#include <stdlib.h>

void export_torch_csv(struct export *x)
{
    const struct decision *d = &x->plan->decision;
    const struct schedule *s = schedule_new(x->arena, d);
    char *text = NULL;
    size_t size = 0;
    if (s && s->copies > 1) {
        export_refuse(x, "schedule %s: each stage is on two ranks, and torch has a stage on one",
                      schedule_name(d->schedule));
        return;
    }
    FILE *out = s ? open_memstream(&text, &size) : NULL;
    if (!out) {
        export_refuse(x, "schedule %s: its actions cannot be made", schedule_name(d->schedule));
        return;
    }
    schedule_print(s, out);
    fclose(out);
    strbuf_text(&x->text, text);
    free(text);
}

/* for --hostfile and SLURM_HOSTFILE, from which torchrun's node ranks are taken */
void export_hosts(struct export *x)
{
    const struct decision *d = &x->plan->decision;
    for (uint32_t i = 0; i < d->nnodes; i++)
        strbuf_printf(&x->text, "%s\n", x->plan->topo->nodes[d->nodes[i]].name);
}
