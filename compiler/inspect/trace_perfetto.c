/* Traces in Perfetto's own form: a stream of TracePackets (protos/perfetto/trace/trace_packet.proto of
 * google/perfetto), of which this file knows the fields that it writes.  Protocol buffers are keys and values: a key is
 * a varint, field * 8 + 0 for a varint, 1 for 8 bytes, 2 for a length and so many bytes.
 *
 * Each rank is a process track with a child track per thread and one for the counter of live bytes.  Each of these is a
 * sequence of packets by itself, so that its track is the default, its times are differences (clock 64, which
 * is incremental), and its strings are written once and then named by numbers.  Process ids are ranks + 1, as process 0
 * is nobody's.  Packets are compressed (field compressed_packets, RFC 1950) in parts. */

#include "compiler/inspect/trace_form.h"

#include "compiler/support/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { FIELD_PACKET = 1 }; /* of Trace */
enum {                     /* of TracePacket */
       PACKET_CLOCKS = 6,
       PACKET_TIME = 8,
       PACKET_SEQUENCE = 10,
       PACKET_EVENT = 11,
       PACKET_STRINGS = 12,
       PACKET_FLAGS = 13,
       PACKET_COMPRESSED = 50,
       PACKET_DEFAULTS = 59,
       PACKET_TRACK = 60
};
enum {
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
    TRACK_ORDER = 11,
    TRACK_RANK = 12
};
enum { PROCESS_PID = 1, PROCESS_NAME = 6, PROCESS_LABELS = 8 };
enum {
    EVENT_CATEGORY = 3,
    EVENT_ANNOTATION = 4,
    EVENT_TYPE = 9,
    EVENT_NAME = 10,
    EVENT_COUNT = 30,
    EVENT_FLOW = 47,
    EVENT_FLOW_ENDS = 48
};
enum { ANNOTATION_NAME = 1, ANNOTATION_UINT = 3, ANNOTATION_REAL = 5, ANNOTATION_TEXT = 17 };
enum { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_COUNT = 4 };
enum { CLEARED = 1, NEEDS_STATE = 2, EXPLICIT = 3, SIZE_BYTES = 3, CLOCK = 64, BOOTTIME = 6 };
enum { PART = 1 << 18 }; /* bytes that are compressed together */

/* interned strings by the field of InternedData that has them */
static const uint32_t string_fields[] = {1, 2, 3, 29};
enum string_kind { CATEGORIES, NAMES, KEYS, TEXTS, NKINDS };
struct interned {
    const char *text;
    enum string_kind kind;
    uint32_t number;
};

struct perfetto {
    struct arena *arena; /* of the sequence's strings */
    uint32_t sequence, numbers[NKINDS], nstrings, room;
    struct interned *table;                           /* by hash */
    int64_t now_ns;                                   /* of the sequence's last packet */
    struct strbuf packets;                            /* to be written compressed */
    struct strbuf packet, event, added, entry, piece; /* being made */
};

/* ---- the wire ---- */

static void put_varint(struct strbuf *b, uint32_t field, uint64_t v)
{
    strbuf_varint(b, (uint64_t)field << 3);
    strbuf_varint(b, v);
}

static void put_fixed(struct strbuf *b, uint32_t field, uint64_t v)
{
    strbuf_varint(b, (uint64_t)field << 3 | 1);
    for (int i = 0; i < 64; i += 8)
        strbuf_char(b, (char)(v >> i & 255));
}

static void put_bytes(struct strbuf *b, uint32_t field, const void *bytes, size_t n)
{
    strbuf_varint(b, (uint64_t)field << 3 | 2);
    strbuf_varint(b, n);
    strbuf_bytes(b, bytes, n);
}

static void put_text(struct strbuf *b, uint32_t field, const char *text)
{
    put_bytes(b, field, text, strlen(text));
}

/* the message that was made in `m`, which is empty afterwards */
static void put_message(struct strbuf *b, uint32_t field, struct strbuf *m)
{
    put_bytes(b, field, m->text, m->length);
    strbuf_clear(m);
}

/* ---- packets ---- */

static void flush(struct trace_out *o)
{
    struct perfetto *f = o->perfetto;
    uLongf n = compressBound(f->packets.length);
    unsigned char *packed = malloc(n);
    if (f->packets.length && packed &&
        compress2(packed, &n, (const Bytef *)f->packets.text, f->packets.length, 6) == Z_OK) {
        strbuf_clear(&f->packets);
        put_bytes(&f->packet, PACKET_COMPRESSED, packed, n);
        put_message(&f->packets, FIELD_PACKET, &f->packet);
    }
    free(packed);
    fwrite(f->packets.text, 1, f->packets.length, o->stream); /* as it is, where there is no memory */
    strbuf_clear(&f->packets);
}

static void end_packet(struct trace_out *o)
{
    put_message(&o->perfetto->packets, FIELD_PACKET, &o->perfetto->packet);
    if (o->perfetto->packets.length >= PART)
        flush(o);
}

/* an event of the sequence, made in f->event; with the strings that are new */
static void end_event(struct trace_out *o, int64_t at_ns)
{
    struct perfetto *f = o->perfetto;
    assert(at_ns >= f->now_ns);
    put_varint(&f->packet, PACKET_TIME, (uint64_t)(at_ns - f->now_ns));
    put_varint(&f->packet, PACKET_SEQUENCE, f->sequence);
    put_varint(&f->packet, PACKET_FLAGS, NEEDS_STATE);
    if (f->added.length)
        put_message(&f->packet, PACKET_STRINGS, &f->added);
    put_message(&f->packet, PACKET_EVENT, &f->event);
    f->now_ns = at_ns;
    end_packet(o);
}

/* ---- strings ---- */

static struct interned *find(const struct perfetto *f, enum string_kind kind, const char *text)
{
    uint32_t hash = 2166136261u ^ kind; /* FNV-1a */
    for (const char *p = text; *p; p++)
        hash = (hash ^ (uint8_t)*p) * 16777619u;
    uint32_t at = hash & (f->room - 1);
    while (f->table[at].text && (f->table[at].kind != kind || strcmp(f->table[at].text, text) != 0))
        at = (at + 1) & (f->room - 1);
    return &f->table[at];
}

static void grow(struct perfetto *f)
{
    struct interned *old = f->table;
    uint32_t n = f->room;
    f->room = n ? 2 * n : 256;
    f->table = ARENA_ARRAY(f->arena, struct interned, f->room);
    for (uint32_t i = 0; i < n; i++)
        if (old[i].text)
            *find(f, old[i].kind, old[i].text) = old[i];
}

/* a string's number in the sequence, from 1 */
static uint32_t intern(struct perfetto *f, enum string_kind kind, const char *text)
{
    if (2 * f->nstrings >= f->room)
        grow(f);
    struct interned *x = find(f, kind, text);
    if (!x->text) {
        *x = (struct interned){arena_strdup(f->arena, text), kind, ++f->numbers[kind]};
        f->nstrings++;
        put_varint(&f->entry, 1, x->number);
        put_text(&f->entry, 2, text);
        put_message(&f->added, string_fields[kind], &f->entry);
    }
    return x->number;
}

/* ---- tracks ---- */

static uint64_t track_of(uint32_t rank, uint32_t thread)
{
    return 1 + (uint64_t)rank * (TRACE_THREADS + 2) + thread;
}
enum { COUNTER_TRACK = TRACE_THREADS, PROCESS_TRACK };

/* the track described in f->piece, and the sequence of what is on it */
static void begin_sequence(struct trace_out *o, uint64_t track)
{
    struct perfetto *f = o->perfetto;
    f->sequence++;
    f->now_ns = 0;
    f->nstrings = f->room = 0;
    memset(f->numbers, 0, sizeof f->numbers);
    arena_free(f->arena);
    f->arena = arena_new();
    put_varint(&f->packet, PACKET_SEQUENCE, f->sequence);
    put_message(&f->packet, PACKET_TRACK, &f->piece);
    end_packet(o);
    static const uint32_t clocks[] = {BOOTTIME, CLOCK};
    for (size_t i = 0; i < 2; i++) {
        put_varint(&f->entry, 1, clocks[i]);
        put_varint(&f->entry, 2, 0);
        if (clocks[i] == CLOCK)
            put_varint(&f->entry, 3, true);
        put_message(&f->piece, 1, &f->entry);
    }
    put_message(&f->packet, PACKET_CLOCKS, &f->piece);
    put_varint(&f->packet, PACKET_SEQUENCE, f->sequence);
    put_varint(&f->packet, PACKET_FLAGS, CLEARED);
    put_varint(&f->entry, 11, track);
    put_message(&f->piece, 11, &f->entry);
    put_varint(&f->piece, 58, CLOCK);
    put_message(&f->packet, PACKET_DEFAULTS, &f->piece);
    end_packet(o);
}

static void begin(struct trace_out *o)
{
    o->perfetto = ARENA_NEW(o->arena, struct perfetto);
    *o->perfetto = (struct perfetto){.arena = arena_new()};
}

static void process(struct trace_out *o, uint32_t rank, const char *name, const char *labels)
{
    struct perfetto *f = o->perfetto;
    put_varint(&f->entry, PROCESS_PID, rank + 1);
    put_text(&f->entry, PROCESS_NAME, name);
    put_text(&f->entry, PROCESS_LABELS, labels);
    put_varint(&f->piece, TRACK_UUID, track_of(rank, PROCESS_TRACK));
    put_message(&f->piece, TRACK_PROCESS, &f->entry);
    put_varint(&f->piece, TRACK_ORDER, EXPLICIT);
    begin_sequence(o, track_of(rank, PROCESS_TRACK));
}

static void thread(struct trace_out *o, uint32_t rank, uint32_t thread, const char *name)
{
    struct perfetto *f = o->perfetto;
    put_varint(&f->piece, TRACK_UUID, track_of(rank, thread));
    put_text(&f->piece, TRACK_NAME, name);
    put_varint(&f->piece, TRACK_PARENT, track_of(rank, PROCESS_TRACK));
    put_varint(&f->piece, TRACK_RANK, thread);
    begin_sequence(o, track_of(rank, thread));
}

static void counter(struct trace_out *o, uint32_t rank)
{
    struct perfetto *f = o->perfetto;
    put_varint(&f->piece, TRACK_UUID, track_of(rank, COUNTER_TRACK));
    put_text(&f->piece, TRACK_NAME, "live bytes");
    put_varint(&f->piece, TRACK_PARENT, track_of(rank, PROCESS_TRACK));
    put_varint(&f->entry, 3, SIZE_BYTES);
    put_message(&f->piece, TRACK_COUNTER, &f->entry);
    put_varint(&f->piece, TRACK_RANK, COUNTER_TRACK);
    begin_sequence(o, track_of(rank, COUNTER_TRACK));
}

static void count(struct trace_out *o, uint32_t rank, int64_t at_ns, uint64_t bytes)
{
    (void)rank;
    put_varint(&o->perfetto->event, EVENT_TYPE, TYPE_COUNT);
    put_varint(&o->perfetto->event, EVENT_COUNT, bytes);
    end_event(o, at_ns);
}

static void put_annotation(struct perfetto *f, const struct trace_arg *x)
{
    uint64_t bits;
    put_varint(&f->piece, ANNOTATION_NAME, intern(f, KEYS, x->key));
    switch (x->kind) {
    case TRACE_NUMBER:
        put_varint(&f->piece, ANNOTATION_UINT, x->number);
        break;
    case TRACE_TEXT:
        put_varint(&f->piece, ANNOTATION_TEXT, intern(f, TEXTS, x->text));
        break;
    case TRACE_REAL:
        memcpy(&bits, &x->real, sizeof bits);
        put_fixed(&f->piece, ANNOTATION_REAL, bits);
        break;
    }
    put_message(&f->event, EVENT_ANNOTATION, &f->piece);
}

static void slice(struct trace_out *o, const struct trace_slice *s)
{
    struct perfetto *f = o->perfetto;
    put_varint(&f->event, EVENT_TYPE, TYPE_BEGIN);
    put_varint(&f->event, EVENT_CATEGORY, intern(f, CATEGORIES, s->category));
    put_varint(&f->event, EVENT_NAME, intern(f, NAMES, s->name));
    for (uint32_t i = 0; i < s->nargs; i++)
        put_annotation(f, &s->args[i]);
    if (s->flow)
        put_fixed(&f->event, s->flow == FLOW_BEGINS ? EVENT_FLOW : EVENT_FLOW_ENDS, s->flow_id + 1);
    end_event(o, s->start_ns);
    put_varint(&f->event, EVENT_TYPE, TYPE_END);
    end_event(o, s->end_ns);
}

/* the figures of plan.json, with a slice as long as the step */
static void end(struct trace_out *o, const struct plan *p, const uint32_t *ranks, uint32_t nranks)
{
    (void)ranks, (void)nranks;
    struct perfetto *f = o->perfetto;
    const struct predicted g = plan_predicted(p);
    const struct trace_slice step = {.category = "step",
                                     .name = p->job->model.name,
                                     .end_ns = p->timeline->step_ns,
                                     .nargs = 6,
                                     .args = {{"producer", TRACE_TEXT, .text = "llmc, simulated"},
                                              {"step_time_s", TRACE_REAL, .real = g.step_time_s},
                                              {"bubble_fraction", TRACE_REAL, .real = g.bubble_fraction},
                                              {"exposed_comm_fraction", TRACE_REAL, .real = g.exposed_comm_fraction},
                                              {"peak_memory_bytes", TRACE_NUMBER, .number = g.peak_memory_bytes},
                                              {"peak_memory_rank", TRACE_NUMBER, .number = g.peak_memory_rank}}};
    uint64_t track = track_of(p->mesh.nranks, 0);
    put_varint(&f->piece, TRACK_UUID, track);
    put_text(&f->piece, TRACK_NAME, "step");
    begin_sequence(o, track);
    slice(o, &step);
    flush(o);
    struct strbuf *const all[] = {&f->packets, &f->packet, &f->event, &f->added, &f->entry, &f->piece};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        strbuf_free(all[i]);
    arena_free(f->arena);
}

const struct trace_form trace_perfetto = {begin, process, thread, slice, counter, count, end};
