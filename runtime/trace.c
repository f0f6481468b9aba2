/* Writing measured spans.  Times in microseconds from the earliest start; nanoseconds stay exact. */

#include "runtime/trace.h"

#include <errno.h>
#include <string.h>

static void write_event(FILE *out, uint32_t rank, const struct insn *in, const struct trace_span *span, int64_t origin)
{
    int64_t start = span->start_ns - origin, length = span->end_ns - span->start_ns;
    fprintf(out, ",\n{\"ph\":\"X\",\"pid\":%u,\"tid\":%u,\"ts\":%lld.%03d,\"dur\":%lld.%03d,\"name\":\"", rank, in->queue,
            (long long)(start / 1000), (int)(start % 1000), (long long)(length / 1000), (int)(length % 1000));
    if (in->action)
        fputc(in->action, out);
    if (in->action && in->microbatch != NONE)
        fprintf(out, "%u", in->microbatch);
    fprintf(out, "%s%s\",\"args\":{\"seq\":%u", in->action ? " " : "", isa_info((enum op)in->op)->name, in->seq);
    if (in->layer != NONE)
        fprintf(out, ",\"layer\":%u", in->layer);
    fputs("}}", out);
}

static void write_rank(FILE *out, uint32_t rank, const struct program *p, const struct trace_span *spans, int64_t origin,
                       const char *comma)
{
    uint32_t count[NQUEUES] = {0};
    fprintf(out, "%s{\"ph\":\"M\",\"pid\":%u,\"name\":\"process_name\",\"args\":{\"name\":\"rank %u\"}}", comma, rank, rank);
    for (uint32_t i = 0; i < p->ninsns; i++)
        count[p->insns[i].queue]++;
    for (uint32_t q = 0; q < NQUEUES; q++)
        if (count[q])
            fprintf(out, ",\n{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", rank, q,
                    isa_queue_name((enum queue)q));
    for (uint32_t q = 0; q < NQUEUES; q++)
        for (uint32_t i = 0; i < p->ninsns; i++)
            if (p->insns[i].queue == q)
                write_event(out, rank, &p->insns[i], &spans[i], origin);
}

enum status run_trace_write(const char *path, const struct ranks *ranks, const struct program *const *programs,
                            const struct trace_span *const *spans, char *error, size_t error_size)
{
    FILE *out = fopen(path, "w");
    int64_t origin = INT64_MAX;
    for (uint32_t r = 0; r < ranks->nranks; r++)
        for (uint32_t i = 0; i < programs[ranks->ranks[r].role]->ninsns; i++)
            origin = spans[r][i].start_ns < origin ? spans[r][i].start_ns : origin;
    if (out) {
        fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", out);
        for (uint32_t r = 0; r < ranks->nranks; r++)
            write_rank(out, r, programs[ranks->ranks[r].role], spans[r], origin, r ? ",\n" : "");
        fputs("\n]}\n", out);
    }
    bool fine = out && !ferror(out);
    if (out && fclose(out))
        fine = false;
    if (fine)
        return STATUS_OK;
    snprintf(error, error_size, "%s: %s", path, strerror(errno));
    return STATUS_WORLD;
}
