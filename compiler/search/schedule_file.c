/* A schedule made elsewhere as a wish: `schedule "file.csv"`, relative to the file that names it.
 *
 * It fixes the number of pipeline ranks, of stages per rank and of microbatches; everything else is searched as
 * usual.  Looped and folded placements are supported. */

#include "compiler/model/actions.h"
#include "compiler/schedule/schedule.h"
#include "compiler/search/space.h"
#include "compiler/support/diag.h"

#include <string.h>

#define MOST_BYTES ((size_t)64 << 20)

static const char *beside(struct arena *a, const struct source *by, const char *file)
{
    const char *slash = by ? strrchr(by->name, '/') : NULL;
    return *file == '/' || !slash ? file : arena_printf(a, "%.*s/%s", (int)(slash - by->name), by->name, file);
}

static bool placed(const struct schedule *s, bool folds)
{
    uint32_t p = s->nranks;
    if (s->nstages % p || (folds && s->nstages != 2 * p))
        return false;
    for (uint32_t i = 0; i < s->nstages; i++)
        if (s->stage_rank[i] != (folds && i >= p ? 2 * p - 1 - i : i % p))
            return false;
    return true;
}

static bool refuse(struct diag *d, const struct schedule_wish *w, const char *why)
{
    diag_error(d, w->span, "schedule-file", "no plan: schedule \"%s\": %s", w->file, why);
    return false;
}

/* an error of the file itself rather than of the request */
static bool refuse_file(struct diag *d, const struct schedule_wish *w, const char *why)
{
    diag_error(d, w->span, "bad-schedule", "schedule \"%s\": %s", w->file, why);
    return false;
}

bool space_schedule_file(struct diag *d, struct space *s, const struct schedule_wish *w, struct space_schedule *out)
{
    const char *why = "";
    struct source *file = source_read(s->arena, d, beside(s->arena, s->job->source, w->file), MOST_BYTES);
    if (!file) {
        diag_note(d, w->span, "the schedule that is wished for");
        return false;
    }
    struct schedule *x = schedule_parse(s->arena, file->text, file->size, &why);
    if (!x)
        return refuse_file(d, w, why);
    if (x->forward_only)
        return refuse_file(d, w, "it has no backward actions");
    *out = (struct space_schedule){.kind = SCHED_FILE, .vpp = x->nstages / x->nranks, .listed = x};
    out->folds = out->vpp == 2 && placed(x, true);
    if (!out->folds && !placed(x, false))
        return refuse(
            d, w,
            arena_printf(s->arena,
                         "its %u stages on %u ranks are neither in turn (stage s on rank s mod pp) nor folded "
                         "(stages r and 2 pp - 1 - r on rank r)",
                         x->nstages, x->nranks));
    bool possible = false;
    for (uint32_t i = 0; i < s->pp.n; i++)
        possible |= s->pp.at[i] == x->nranks;
    if (!possible)
        return refuse(d, w,
                      arena_printf(s->arena, "it has %u pipeline ranks, which neither wishes nor job and cluster allow",
                                   x->nranks));
    if (!space_wants(&s->job->wishes.degree[DEG_VPP], out->vpp))
        return refuse(d, w, arena_printf(s->arena, "it has %u stages per rank, which 'vpp' excludes", out->vpp));
    return true;
}
