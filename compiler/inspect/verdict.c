/* Printing what the verifier found. */

#include "compiler/inspect/verdict.h"

#include "compiler/support/strbuf.h"

#include <inttypes.h>

void verdict_print(const struct verdict *v, FILE *out)
{
    for (uint32_t i = 0; i < v->nviolations; i++) {
        const struct violation *x = &v->violations[i];
        fprintf(out, "property %u, role %u%s: %s\n", x->property, x->role,
                x->evaluation ? " (evaluation)" : "", x->message);
    }
    if (!v->nviolations)
        fprintf(out, "properties 1-8 hold: %" PRIu64 " instructions, %" PRIu64 " ranks%s\n", v->checked_insns,
                v->checked_ranks, v->certificate ? ", one global order of communication" : "");
}

static void number_or_null(struct strbuf *b, const char *key, uint32_t v)
{
    if (v == NONE)
        strbuf_printf(b, "\"%s\": null, ", key);
    else
        strbuf_printf(b, "\"%s\": %u, ", key, v);
}

void verdict_json(const struct verdict *v, FILE *out)
{
    struct strbuf b = {0};
    strbuf_printf(&b,
                  "{\"schema\": 1, \"holds\": %s, \"certificate\": %s, \"instructions\": %" PRIu64
                  ", \"ranks\": %" PRIu64 ", \"violations\": [",
                  v->nviolations ? "false" : "true", v->certificate ? "true" : "false", v->checked_insns,
                  v->checked_ranks);
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
    strbuf_text(&b, "]}\n");
    fputs(b.text, out);
    strbuf_free(&b);
}
