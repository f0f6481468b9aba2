/* Traces in Chrome's trace event format ("JSON Array Format" with metadata, as read by Perfetto's importer and by
 * chrome://tracing): an event a line, about 250 bytes each. */

#include "compiler/inspect/trace_form.h"

static void begin_event(struct trace_out *o)
{
    fprintf(o->stream, "%s\n", o->comma);
    o->comma = ",";
}

/* microseconds with the nanoseconds as decimals */
static void print_time(FILE *out, const char *key, int64_t ns)
{
    fprintf(out, ",\"%s\":%lld.%03lld", key, (long long)(ns / 1000), (long long)(ns % 1000));
}

static void begin(struct trace_out *o)
{
    o->comma = "";
    fputs("{\"traceEvents\":[", o->stream);
}

static void process(struct trace_out *o, uint32_t rank, const char *name, const char *labels)
{
    begin_event(o);
    fprintf(o->stream, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"%s\"}}", rank, name);
    begin_event(o);
    fprintf(o->stream, "{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":%u,\"args\":{\"labels\":\"%s\"}}", rank,
            labels);
    begin_event(o);
    fprintf(o->stream, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%u,\"args\":{\"sort_index\":%u}}", rank,
            rank);
}

static void thread(struct trace_out *o, uint32_t rank, uint32_t thread, const char *name)
{
    begin_event(o);
    fprintf(o->stream, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"%s\"}}", rank,
            thread, name);
    begin_event(o);
    fprintf(o->stream,
            "{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":%u,\"tid\":%u,\"args\":{\"sort_index\":%u}}", rank,
            thread, thread);
}

static void print_args(struct trace_out *o, const struct trace_slice *s)
{
    struct strbuf *b = &o->text;
    strbuf_clear(b);
    for (uint32_t i = 0; i < s->nargs; i++) {
        const struct trace_arg *x = &s->args[i];
        strbuf_text(b, i ? "," : ",\"args\":{");
        switch (x->kind) {
        case TRACE_NUMBER:
            strbuf_json(b, "%s:%llu", x->key, (unsigned long long)x->number);
            break;
        case TRACE_TEXT:
            strbuf_json(b, "%s:%s", x->key, x->text);
            break;
        case TRACE_REAL:
            strbuf_json(b, "%s:%g", x->key, x->real);
            break;
        }
    }
    strbuf_text(b, s->nargs ? "}" : "");
    fputs(b->text, o->stream);
}

static void slice(struct trace_out *o, const struct trace_slice *s)
{
    begin_event(o);
    fprintf(o->stream, "{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u", s->category, s->name,
            s->rank, s->thread);
    print_time(o->stream, "ts", s->start_ns);
    print_time(o->stream, "dur", s->end_ns - s->start_ns);
    print_args(o, s);
    fputc('}', o->stream);
    if (!s->flow)
        return;
    begin_event(o);
    fprintf(o->stream, "{\"ph\":\"%s\",\"cat\":\"transfer\",\"name\":\"%s\",\"id\":%llu,\"pid\":%u,\"tid\":%u",
            s->flow == FLOW_BEGINS ? "s" : "f\",\"bp\":\"e", s->flow_name, (unsigned long long)s->flow_id, s->rank,
            s->thread);
    print_time(o->stream, "ts", s->start_ns);
    fputc('}', o->stream);
}

static void counter(struct trace_out *o, uint32_t rank)
{
    (void)o, (void)rank; /* its first count declares it */
}

static void count(struct trace_out *o, uint32_t rank, int64_t at_ns, uint64_t bytes)
{
    begin_event(o);
    fprintf(o->stream, "{\"ph\":\"C\",\"name\":\"live bytes\",\"pid\":%u", rank);
    print_time(o->stream, "ts", at_ns);
    fprintf(o->stream, ",\"args\":{\"bytes\":%llu}}", (unsigned long long)bytes);
}

static void end(struct trace_out *o, const struct plan *p, const uint32_t *ranks, uint32_t nranks)
{
    const struct predicted f = plan_predicted(p);
    struct strbuf *b = &o->text;
    strbuf_clear(b);
    strbuf_text(b, "\n],\n\"displayTimeUnit\":\"ms\",\n");
    if (nranks == 1)
        strbuf_printf(b, "\"distributedInfo\":{\"rank\":%u,\"world_size\":%u},\n", ranks[0], p->mesh.nranks);
    strbuf_json(b,
                "'otherData':{'producer':'llmc','simulated':true,'model':%s,'step_time_s':%g,'bubble_fraction':%g,"
                "'exposed_comm_fraction':%g,'peak_memory_bytes':%lu,'peak_memory_rank':%u}}\n",
                p->job->model.name, f.step_time_s, f.bubble_fraction, f.exposed_comm_fraction, f.peak_memory_bytes,
                f.peak_memory_rank);
    fputs(b->text, o->stream);
}

const struct trace_form trace_json = {begin, process, thread, slice, counter, count, end};
