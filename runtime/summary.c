/* The run's summary as one JSON object. */

#include "runtime/summary.h"

#include <math.h>

static uint64_t total(const struct run *r, uint32_t which)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r->world.nranks; i++)
        sum += r->world.ranks[i].report[which];
    return sum;
}

static void print_arenas(const struct run *r, FILE *out)
{
    fputs("  \"arenas\": [", out);
    for (uint32_t i = 0; i < r->world.nranks; i++) {
        fprintf(out, "%s{\"rank\": %u, \"planned_bytes\": %llu, \"touched_bytes\": %llu}", i ? ", " : "", i,
                (unsigned long long)r->arena_sizes[i],
                (unsigned long long)r->world.ranks[i].report[REPORT_ARENA_TOUCHED]);
    }
    fputs("],\n", out);
}

static void print_memory(const struct run *r, const struct summary *s, FILE *out)
{
    int64_t rise = (int64_t)(total(r, REPORT_END) - total(r, REPORT_LOADED)), named = 0;
    fputs("  \"memory\": {", out);
    for (uint32_t i = 0; i < NMEMORY; i++) {
        fprintf(out, "\"%s\": {\"loaded_bytes\": %llu, \"end_bytes\": %llu}, ",
                memory_line_name((enum memory_line)i), (unsigned long long)s->before[i],
                (unsigned long long)s->after[i]);
        named += (int64_t)(s->after[i] - s->before[i]);
    }
    fprintf(out, "\"named_rise_bytes\": %lld, \"rise_bytes\": %lld},\n", (long long)named, (long long)rise);
}

void summary_print(const struct run *r, const struct exec *e, const struct summary *s, FILE *out)
{
    char device[256];
    r->player->describe(e, device, sizeof device);
    fprintf(out, "{\"steps\": %llu, \"ranks\": %u, \"tokens\": %llu,\n", (unsigned long long)s->steps,
            r->world.nranks, (unsigned long long)s->tokens);
    fputs("  \"loss\": ", out);
    log_number(out, s->loss);
    fputs(", \"eval_loss\": ", out);
    log_number(out, s->eval_loss);
    fputs(", \"tokens_per_s\": ", out);
    uint64_t timed = s->steps > 1 ? s->steps - 1 : 0;
    log_number(out, timed ? (double)s->tokens / (double)s->steps * (double)timed / s->seconds : NAN);
    fprintf(out, ",\n  \"device\": \"%s\", \"transport\": \"%s\",\n", device, r->player->transport);
    if (r->player->print)
        r->player->print(e, out);
    fprintf(out,
            "  \"instructions_per_step\": %llu, \"allocations_after_first_step\": %llu, \"scratch_bytes\": "
            "%llu,\n",
            (unsigned long long)total(r, REPORT_INSTRUCTIONS),
            (unsigned long long)total(r, REPORT_ALLOCATIONS), (unsigned long long)total(r, REPORT_SCRATCH));
    if (s->loss_scale > 0) {
        fputs("  \"loss_scale\": ", out);
        log_number(out, s->loss_scale);
        fprintf(out, ", \"skipped_steps\": %llu,\n", (unsigned long long)s->skipped);
    }
    if (r->o.paced) {
        fputs("  \"paced\": {\"planned_step_s\": ", out);
        log_number(out, (double)r->pace.step_ns * 1e-9);
        fputs(", \"measured_step_s\": ", out);
        log_number(out, timed ? s->seconds / (double)timed : NAN);
        fputs("},\n", out);
    }
    if (r->o.routing[ROUTING_COMPARE]) {
        double margin = 0;
        for (uint32_t i = 0; i < r->world.nranks; i++)
            margin = fmax(margin, r->world.ranks[i].margin);
        fprintf(out, "  \"routing\": {\"compared\": %llu, \"flips\": %llu, \"greatest_margin\": ",
                (unsigned long long)total(r, REPORT_COMPARED), (unsigned long long)total(r, REPORT_FLIPS));
        log_number(out, margin);
        fputs("},\n", out);
    }
    print_arenas(r, out);
    print_memory(r, s, out);
    fprintf(out, "  \"plan\": \"%s\"}\n", r->folder->hash);
}
