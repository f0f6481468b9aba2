/* The manual of the instruction set: nothing here knows an instruction, all of it is the table in words.
 *
 *   MATMUL_NT          queue compute, unit matmul
 *     c = a b' + bias: a linear layer's output, b stored [out, in]
 *       c         [m, n]             write or accumulate                 G: f32, bf16 or f16, its own
 *       bias      [1, n]             read, may be absent                 C: f32, bf16 or f16, the same for all C
 */

#include "compiler/inspect/manual.h"
#include "compiler/support/strbuf.h"
#include "runtime/isa.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static const char *mark_words(enum mark m)
{
    switch (m) {
    case MARK_READ:
        return "read";
    case MARK_WRITE:
        return "write";
    case MARK_ADD:
        return "write or accumulate";
    case MARK_UPDATE:
        return "read and write";
    case MARK_NONE:
        break;
    }
    return "none";
}

static const char *dtype_words(char class)
{
    switch (class) {
    case 'C':
        return "f32, bf16 or f16, the same for all C";
    case 'G':
        return "f32, bf16 or f16, its own";
    case 'F':
        return "f32";
    case 'I':
        return "i32";
    case 'D':
        return "f64";
    case 'A':
        return "any, the same for all A";
    default:
        return "?";
    }
}

static const char *attr_words(enum attr_kind k)
{
    switch (k) {
    case ATTR_INT:
        return "integer";
    case ATTR_REAL:
        return "real";
    case ATTR_BIND:
        return "integer, may be base + slot * stride";
    case ATTR_PEER:
        return "peer slot";
    case ATTR_GROUP:
        return "group slot";
    }
    return "?";
}

static bool matches(const struct isa_info *info, const char *filter)
{
    if (!filter)
        return true;
    size_t n = strlen(filter);
    for (const char *s = info->name; strlen(s) >= n; s++)
        if (!strncasecmp(s, filter, n))
            return true;
    return false;
}

static void print_row(const struct isa_info *info, FILE *out)
{
    struct strbuf meaning = {0};
    strbuf_wrap(&meaning, info->meaning, 2, 2, 110);
    fprintf(out, "%-18s queue %s, unit %s\n  %s\n", info->name,
            info->queue == QUEUE_ANY ? "tp, dp or compute" : isa_queue_name(info->queue), isa_unit_name(info->unit),
            meaning.text);
    strbuf_free(&meaning);
    for (size_t k = 0; k < info->noperands; k++) {
        const struct isa_operand *o = &info->operand[k];
        char shape[48], mark[48];
        snprintf(shape, sizeof shape, "[%s, %s]", o->rows, o->cols);
        snprintf(mark, sizeof mark, "%s%s", mark_words(o->mark), o->optional ? ", may be absent" : "");
        fprintf(out, "    %-9s %-18s %-35s %c: %s\n", o->name, shape, mark, o->dtype, dtype_words(o->dtype));
    }
    for (size_t k = 0; k < info->nattrs; k++)
        fprintf(out, "    %-9s %s\n", info->attr[k].name, attr_words(info->attr[k].kind));
}

bool manual_isa(FILE *out, const char *filter)
{
    bool any = false;
    for (enum op op = 0; op < NOPS; op++) {
        const struct isa_info *info = isa_info(op);
        if (!matches(info, filter))
            continue;
        if (any)
            fputc('\n', out);
        else if (!filter)
            fprintf(out,
                    "%d instructions, fingerprint %016" PRIx64 ".\n"
                    "An operand is a row-major matrix view [rows, columns]; equal names in one instruction "
                    "are equal\n"
                    "sizes, names of attributes stand for their values, group_n for the members of the "
                    "group.\n\n",
                    (int)NOPS, isa_fingerprint());
        print_row(info, out);
        any = true;
    }
    return any;
}

static void json_row(struct strbuf *b, enum op op, const struct isa_info *info)
{
    strbuf_json(b, "    {'name': %s, 'number': %u, 'queue': %s, 'unit': %s,\n     'meaning': %s,\n     'operands': [",
                info->name, op, isa_queue_name(info->queue), isa_unit_name(info->unit), info->meaning);
    for (size_t k = 0; k < info->noperands; k++) {
        const struct isa_operand *o = &info->operand[k];
        strbuf_text(b, k ? "," : "");
        strbuf_json(b, "\n       {'name': %s, 'mark': %s, 'optional': %d, 'dtype': %s, 'rows': %s, 'cols': %s}",
                    o->name, mark_words(o->mark), o->optional, dtype_words(o->dtype), o->rows, o->cols);
    }
    strbuf_text(b, "],\n     \"attributes\": [");
    for (size_t k = 0; k < info->nattrs; k++) {
        strbuf_text(b, k ? ", " : "");
        strbuf_json(b, "{'name': %s, 'kind': %s}", info->attr[k].name, attr_words(info->attr[k].kind));
    }
    strbuf_text(b, "]}");
}

bool manual_isa_json(FILE *out, const char *filter)
{
    struct strbuf b = {0};
    bool any = false;
    strbuf_printf(&b, "{\"fingerprint\": \"%016" PRIx64 "\", \"instructions\": [\n", isa_fingerprint());
    for (enum op op = 0; op < NOPS; op++) {
        const struct isa_info *info = isa_info(op);
        if (!matches(info, filter))
            continue;
        if (any)
            strbuf_text(&b, ",\n");
        json_row(&b, op, info);
        any = true;
    }
    strbuf_text(&b, "\n]}\n");
    if (any)
        fputs(b.text, out);
    strbuf_free(&b);
    return any;
}
