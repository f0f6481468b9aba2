/* Printing what the verifier found. */

#include "compiler/inspect/verdict.h"

#include "compiler/support/strbuf.h"

#include <inttypes.h>

void origin_print(const struct origin *o, FILE *out)
{
    for (uint32_t i = 0; i < o->ndifferences; i++) {
        const struct difference *x = &o->differences[i];
        fprintf(out, "origin%s%s: %s\n", x->file ? ", " : "", x->file ? x->file : "", x->message);
    }
    if (o->ndifferences && o->differences[0].file)
        fprintf(out, "origin: if nobody changed a file, another build of llmc made this folder: make the plan again\n");
    if (!o->ndifferences)
        fprintf(out, "origin holds: model.llm, cluster.xml and the overrides give this plan, %u files to the byte\n",
                o->nfiles);
}

void verdict_print(const struct verdict *v, const struct origin *o, FILE *out)
{
    for (uint32_t i = 0; i < v->nviolations; i++) {
        const struct violation *x = &v->violations[i];
        fprintf(out, "property %u, role %u%s: %s\n", x->property, x->role, x->evaluation ? " (evaluation)" : "",
                x->message);
    }
    if (!v->nviolations)
        fprintf(out, "properties 1-8 hold: %" PRIu64 " instructions, %" PRIu64 " ranks%s\n", v->checked_insns,
                v->checked_ranks, v->certificate ? ", one global order of communication" : "");
    if (o)
        origin_print(o, out);
}

/* a number, or null */
static void json_index(struct strbuf *b, const char *key, uint32_t v)
{
    strbuf_json(b, v == NONE ? "%s: null, " : "%s: %u, ", key, v);
}

void origin_json(const struct origin *o, struct strbuf *b)
{
    strbuf_json(b, ", 'origin': {'holds': %d, 'compiler': %s, 'files': %u, 'differences': [", !o->ndifferences,
                o->version, o->nfiles);
    for (uint32_t i = 0; i < o->ndifferences; i++) {
        const struct difference *x = &o->differences[i];
        strbuf_text(b, i ? "," : "");
        strbuf_json(b, "\n {'file': %s, 'key': %s, ", x->file, x->key);
        json_index(b, "role", x->role);
        strbuf_json(b, "'evaluation': %d, ", x->evaluation);
        json_index(b, "instruction", x->instruction);
        strbuf_json(b, "'message': %s}", x->message);
    }
    strbuf_text(b, "]}");
}

void verdict_json(const struct verdict *v, const struct origin *o, FILE *out)
{
    struct strbuf b = {0};
    strbuf_json(&b, "{'schema': 1, 'holds': %d, 'certificate': %d, 'instructions': %lu, 'ranks': %lu, 'violations': [",
                !v->nviolations && !(o && o->ndifferences), v->certificate, v->checked_insns, v->checked_ranks);
    for (uint32_t i = 0; i < v->nviolations; i++) {
        const struct violation *x = &v->violations[i];
        strbuf_text(&b, i ? "," : "");
        strbuf_json(&b, "\n {'property': %u, 'role': %u, ", x->property, x->role);
        json_index(&b, "rank", x->rank);
        strbuf_json(&b, "'evaluation': %d, ", x->evaluation);
        json_index(&b, "instruction", x->insn);
        strbuf_json(&b, "'message': %s}", x->message);
    }
    strbuf_char(&b, ']');
    if (o)
        origin_json(o, &b);
    strbuf_text(&b, "}\n");
    fputs(b.text, out);
    strbuf_free(&b);
}
