/* The page itself: page/ as the build has put it into the program, with the plans' data in place of a mark.
 *
 * A record is compressed (RFC 1950, which browsers know as "deflate") and written in base64 (RFC 4648, section 4).
 * JSON within <script> must not end it, so "</" is written as "<\/" there. */

#include "compiler/report/report.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const char *const page[] = {
#include "compiler/report/page.inc"
};

static void base64(const unsigned char *bytes, size_t n, FILE *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t left = n - i < 3 ? (uint32_t)(n - i) : 3, v = (uint32_t)bytes[i] << 16;
        v |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        v |= left > 2 ? bytes[i + 2] : 0;
        char text[4] = {digits[v >> 18], digits[v >> 12 & 63], left > 1 ? digits[v >> 6 & 63] : '=',
                        left > 2 ? digits[v & 63] : '='};
        fwrite(text, 1, sizeof text, out);
    }
}

static enum status write_record(const struct plan *p, FILE *out, struct error *error)
{
    struct strbuf record = {0};
    report_record(p, &record);
    uLongf n = compressBound(record.length);
    unsigned char *packed = malloc(n);
    int status = packed ? compress2(packed, &n, (const Bytef *)record.text, record.length, 6) : Z_MEM_ERROR;
    if (status == Z_OK)
        base64(packed, n, out);
    strbuf_free(&record);
    free(packed);
    return status == Z_OK ? STATUS_OK : error_set(error, STATUS_WORLD, "the timeline cannot be compressed");
}

void report_script(const char *id, const char *json, FILE *out)
{
    fprintf(out, "<script type=\"application/json\" id=\"%s\">", id);
    for (const char *s = json; *s; s++) {
        fputc(*s, out);
        if (s[0] == '<' && s[1] == '/')
            fputc('\\', out);
    }
    fputs("</script>\n", out);
}

static enum status write_plan(const struct report_plan *p, uint32_t i, FILE *out, struct error *error)
{
    struct strbuf data = {0};
    char id[20];
    snprintf(id, sizeof id, "plan%u", i);
    report_data(p, &data);
    report_script(id, data.text, out);
    strbuf_free(&data);
    fprintf(out, "<script type=\"text/plain\" id=\"record%u\">", i);
    TRY(write_record(p->plan, out, error));
    fputs("</script>\n", out);
    return STATUS_OK;
}

enum status report_write(const struct report_plan *plans, uint32_t n, FILE *out, struct error *error)
{
    for (size_t i = 0; i < sizeof page / sizeof *page; i++) {
        bool mark = !strcmp(page[i], "<!--plans-->");
        for (uint32_t k = 0; mark && k < n; k++)
            TRY(write_plan(&plans[k], k, out, error));
        if (!mark)
            fprintf(out, "%s\n", page[i]);
    }
    return STATUS_OK;
}
