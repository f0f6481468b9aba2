/* The run's summary as one JSON object, on a line of its own. */

#include "runtime/summary.h"

#include <jansson.h>
#include <math.h>

static json_int_t total(const struct run *r, uint32_t which)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->world.nranks; i++)
        sum += r->world.ranks[i].report[which];
    return (json_int_t)sum;
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* what a device says of itself; where that is no UTF-8, its ASCII characters */
static json_t *plain(char *text)
{
    json_t *string = json_string(text);
    if (string)
        return string;
    for (char *c = text; *c; c++)
        if (*c & 0x80)
            *c = '?';
    return json_string(text);
}

static json_t *arenas(const struct run *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->world.nranks; i++)
        json_array_append_new(list, json_pack("{s:I, s:I, s:I}", "rank", (json_int_t)i, "planned_bytes",
                                              (json_int_t)r->arena_sizes[i], "touched_bytes",
                                              (json_int_t)r->world.ranks[i].report[REPORT_ARENA_TOUCHED]));
    return list;
}

static json_t *memory(const struct run *r, const struct summary *s)
{
    json_int_t named = 0;
    json_t *o = json_object();
    for (uint32_t i = 0; i < NMEMORY; i++) {
        json_int_t loaded = (json_int_t)s->before[i], end = (json_int_t)s->after[i];
        json_object_set_new(o, memory_line_name((enum memory_line)i),
                            json_pack("{s:I, s:I}", "loaded_bytes", loaded, "end_bytes", end));
        named += end - loaded;
    }
    json_object_set_new(o, "named_rise_bytes", json_integer(named));
    json_object_set_new(o, "rise_bytes", json_integer(total(r, REPORT_END) - total(r, REPORT_LOADED)));
    return o;
}

static json_t *routing(const struct run *r)
{
    double margin = 0;
    for (uint32_t i = 0; i < r->world.nranks; i++)
        margin = fmax(margin, r->world.ranks[i].margin);
    return json_pack("{s:I, s:I, s:o}", "compared", total(r, REPORT_COMPARED), "flips", total(r, REPORT_FLIPS),
                     "greatest_margin", number(margin));
}

void summary_print(const struct run *r, const struct exec *e, const struct summary *s, FILE *out)
{
    char device[256];
    uint64_t own = s->steps - r->resumed.step;
    double timed = own > 1 ? (double)own - 1 : NAN; /* steps that s->seconds are of */
    r->player->describe(e, device, sizeof device);
    json_t *o = json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:s}", "steps", (json_int_t)s->steps, "ranks",
                          (json_int_t)r->world.nranks, "tokens", (json_int_t)s->tokens, "loss", number(s->loss),
                          "eval_loss", number(s->eval_loss), "tokens_per_s",
                          number((double)s->tokens / (double)s->steps * timed / s->seconds), "device", plain(device),
                          "transport", r->player->transport);
    if (r->player->report)
        r->player->report(e, o);
    json_object_set_new(o, "instructions_per_step", json_integer(total(r, REPORT_INSTRUCTIONS)));
    json_object_set_new(o, "allocations_after_first_step", json_integer(total(r, REPORT_ALLOCATIONS)));
    json_object_set_new(o, "scratch_bytes", json_integer(total(r, REPORT_SCRATCH)));
    if (s->loss_scale > 0) {
        json_object_set_new(o, "loss_scale", number(s->loss_scale));
        json_object_set_new(o, "skipped_steps", json_integer((json_int_t)s->skipped));
    }
    if (r->o.checkpoint.dir)
        json_object_set_new(o, "checkpoints",
                            json_pack("{s:I, s:I, s:I, s:o}", "written", (json_int_t)s->checkpoints.written, "left_out",
                                      (json_int_t)s->checkpoints.left_out, "failed", (json_int_t)s->checkpoints.failed,
                                      "stall_s", number(s->checkpoints.stall_s)));
    if (r->o.paced)
        json_object_set_new(o, "paced",
                            json_pack("{s:o, s:o}", "planned_step_s", number((double)r->pace.step_ns * 1e-9),
                                      "measured_step_s", number(s->seconds / timed)));
    if (r->o.routing[ROUTING_COMPARE])
        json_object_set_new(o, "routing", routing(r));
    json_object_set_new(o, "arenas", arenas(r));
    json_object_set_new(o, "memory", memory(r, s));
    json_object_set_new(o, "plan", json_string(r->folder->hash));
    json_dumpf(o, out, 0);
    fputc('\n', out);
    json_decref(o);
}
