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

static void number_or_null(struct strbuf *b, const char *key, uint32_t v)
{
    if (v == NONE)
        strbuf_printf(b, "\"%s\": null, ", key);
    else
        strbuf_printf(b, "\"%s\": %u, ", key, v);
}

static void text_or_null(struct strbuf *b, const char *key, const char *text)
{
    strbuf_printf(b, "\"%s\": ", key);
    if (text)
        strbuf_json_string(b, text);
    else
        strbuf_text(b, "null");
    strbuf_text(b, ", ");
}

void origin_json(const struct origin *o, struct strbuf *b)
{
    strbuf_printf(b, ", \"origin\": {\"holds\": %s, ", o->ndifferences ? "false" : "true");
    text_or_null(b, "compiler", o->version);
    strbuf_printf(b, "\"files\": %u, \"differences\": [", o->nfiles);
    for (uint32_t i = 0; i < o->ndifferences; i++) {
        const struct difference *x = &o->differences[i];
        strbuf_printf(b, "%s\n {", i ? "," : "");
        text_or_null(b, "file", x->file);
        text_or_null(b, "key", x->key);
        number_or_null(b, "role", x->role);
        strbuf_printf(b, "\"evaluation\": %s, ", x->evaluation ? "true" : "false");
        number_or_null(b, "instruction", x->instruction);
        strbuf_text(b, "\"message\": ");
        strbuf_json_string(b, x->message);
        strbuf_char(b, '}');
    }
    strbuf_text(b, "]}");
}

void verdict_json(const struct verdict *v, const struct origin *o, FILE *out)
{
    struct strbuf b = {0};
    bool holds = !v->nviolations && !(o && o->ndifferences);
    strbuf_printf(&b,
                  "{\"schema\": 1, \"holds\": %s, \"certificate\": %s, \"instructions\": %" PRIu64
                  ", \"ranks\": %" PRIu64 ", \"violations\": [",
                  holds ? "true" : "false", v->certificate ? "true" : "false", v->checked_insns, v->checked_ranks);
    for (uint32_t i = 0; i < v->nviolations; i++) {
        const struct violation *x = &v->violations[i];
        strbuf_printf(&b, "%s\n {\"property\": %u, \"role\": %u, ", i ? "," : "", x->property, x->role);
        number_or_null(&b, "rank", x->rank);
        strbuf_printf(&b, "\"evaluation\": %s, ", x->evaluation ? "true" : "false");
        number_or_null(&b, "instruction", x->insn);
        strbuf_text(&b, "\"message\": ");
        strbuf_json_string(&b, x->message);
        strbuf_char(&b, '}');
    }
    strbuf_char(&b, ']');
    if (o)
        origin_json(o, &b);
    strbuf_text(&b, "}\n");
    fputs(b.text, out);
    strbuf_free(&b);
}
