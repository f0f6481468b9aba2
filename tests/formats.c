/* Formats of messages, read out of source text; see formats.h. */

#include "tests/formats.h"

#include "compiler/support/strbuf.h"

#include <CUnit/CUnit.h>
#include <ctype.h>
#include <string.h>

char *formats_read(struct arena *a, const char *path)
{
    enum { ROOM = 1 << 17 };
    FILE *f = fopen(path, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    char *text = ARENA_ARRAY(a, char, ROOM);
    size_t size = fread(text, 1, ROOM - 1, f);
    CU_ASSERT_FATAL(size > 0 && size < ROOM - 1);
    fclose(f);
    return text;
}

char *formats_literal(struct arena *a, const char *at, const char **end)
{
    struct strbuf b = {0};
    while (*at == '"' || !strncmp(at, "PRI", 3)) {
        if (*at != '"') { /* PRIu32: the letter behind PRI */
            strbuf_char(&b, at[3]);
            for (at += 4; isalnum((unsigned char)*at);)
                at++;
        } else {
            for (at++; *at != '"'; at++) {
                if (*at == '\\')
                    at++;
                strbuf_char(&b, *at);
            }
            at++;
        }
        at += strspn(at, " \n");
    }
    *end = at;
    char *text = arena_printf(a, "%s", b.text ? b.text : "");
    strbuf_free(&b);
    return text;
}

void formats_of_calls(struct arena *a, const char *text, const char *call, formats_take *take, void *context)
{
    for (const char *at = strstr(text, call); at; at = strstr(at + 1, call)) {
        const char *open = at + strlen(call) - 1;
        int depth = *open == '(';
        for (open += depth; depth || *open == '"'; open++) {
            depth += (*open == '(') - (*open == ')');
            if (*open != '"')
                continue;
            if (!take(context, formats_literal(a, open, &open)))
                break;
            open--;
        }
    }
}

bool formats_fit(const char *format, const char *message, bool *words)
{
    *words = false;
    while (*format) {
        char word[300];
        size_t n = 0;
        for (; *format && (*format != '%' || format[1] == '%'); format++) {
            CU_ASSERT_FATAL(n + 1 < sizeof word);
            word[n++] = *format;
            format += *format == '%';
        }
        word[n] = 0;
        if (strspn(word, " ,.:;()-+x[]") < n) {
            *words = true;
            message = strstr(message, word);
            if (!message)
                return false;
            message += n;
        }
        if (*format == '%') {
            format += 1 + strcspn(format + 1, "sduixgc");
            format += *format != 0;
        }
    }
    return true;
}
