/* Writing measured spans.  Times in microseconds from the earliest start; nanoseconds stay exact. */

#include "runtime/trace.h"
#include "runtime/file.h"

/* threads are numbered as `llmc trace` does, which keeps 0 for whole actions */
static uint32_t thread_of(uint32_t queue)
{
    return queue + 1;
}

static void write_time(FILE *out, const char *name, int64_t ns)
{
    fprintf(out, ",\"%s\":%lld.%03d", name, (long long)(ns / 1000), (int)(ns % 1000));
}

static void write_event(FILE *out, uint32_t rank, const struct insn *in, const struct trace_span *span, int64_t origin)
{
    fprintf(out, ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"", isa_queue_name((enum queue)in->queue));
    if (in->action && in->microbatch != NONE)
        fprintf(out, "%c%u ", in->action, in->microbatch);
    else if (in->action)
        fprintf(out, "%c ", in->action);
    fprintf(out, "%s\",\"pid\":%u,\"tid\":%u", isa_info(in->op)->name, rank, thread_of(in->queue));
    write_time(out, "ts", span->start_ns - origin);
    write_time(out, "dur", span->end_ns - span->start_ns);
    if (span->core_ns > 0)
        write_time(out, "tdur", span->core_ns);
    fprintf(out, ",\"args\":{\"seq\":%u", in->seq);
    if (in->layer != NONE)
        fprintf(out, ",\"layer\":%u", in->layer);
    if (in->stage != UINT16_MAX)
        fprintf(out, ",\"stage\":%u", in->stage);
    if (in->line)
        fprintf(out, ",\"line\":%u", in->line);
    fputs("}}", out);
}

static void write_rank(FILE *out, uint32_t rank, const struct program *p, const struct trace_span *spans,
                       int64_t origin, const char *comma)
{
    uint32_t count[NQUEUES] = {0};
    fprintf(out, "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"rank %u\"}}", comma, rank,
            rank);
    for (uint32_t i = 0; i < p->ninsns; i++)
        count[p->insns[i].queue]++;
    for (uint32_t q = 0; q < NQUEUES; q++)
        if (count[q])
            fprintf(out, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"%s\"}}",
                    rank, thread_of(q), isa_queue_name((enum queue)q));
    for (uint32_t q = 0; q < NQUEUES; q++)
        for (uint32_t i = 0; i < p->ninsns; i++)
            if (p->insns[i].queue == q)
                write_event(out, rank, &p->insns[i], &spans[i], origin);
}

enum status run_trace_write(const char *path, const struct ranks *ranks, const struct program *const *programs,
                            const struct trace_span *const *spans, struct error *error)
{
    struct file_out file;
    const char *why = file_create(path, &file);
    FILE *out = file.stream;
    int64_t origin = INT64_MAX;
    for (uint32_t r = 0; r < ranks->nranks; r++)
        for (uint32_t i = 0; i < programs[ranks->ranks[r].role]->ninsns; i++)
            origin = spans[r][i].start_ns < origin ? spans[r][i].start_ns : origin;
    if (!why) {
        fputs("{\"traceEvents\":[\n", out);
        for (uint32_t r = 0; r < ranks->nranks; r++)
            write_rank(out, r, programs[ranks->ranks[r].role], spans[r], origin, r ? ",\n" : "");
        fputs("\n],\"displayTimeUnit\":\"ns\"}\n", out);
    }
    why = why ? why : file_publish(&file);
    return why ? error_set(error, STATUS_WORLD, "%s: %s", path, why) : STATUS_OK;
}
