/* Lines of views broken to a width.  Views print lines as long as they are into a string, so that none of them counts
 * columns; what is a table shows it by two blanks in front of its last column. */

#include "compiler/inspect/fitted.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool begins(char c) /* a character of UTF-8 */
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* at which column a line goes on */
static size_t hanging(const char *s, size_t n, size_t width)
{
    size_t own = strspn(s, " "), column = 0, found = 0;
    for (size_t i = 0; i < n; i++) {
        if (i > own && i + 1 < n && s[i] == ' ' && s[i - 1] == ' ' && s[i + 1] != ' ' &&
            column + 1 + FITTED_LEAST <= width)
            found = column + 1;
        column += begins(s[i]);
    }
    return found ? found : own + 2;
}

/* how many bytes of a line to print in so many columns, broken behind `from` bytes at the earliest */
static size_t cut(const char *s, size_t n, size_t columns, size_t from)
{
    size_t column = 0, blank = 0, bar = 0, at = 0;
    for (; at < n && (column < columns || !begins(s[at])); at++) {
        column += begins(s[at]);
        if (at > from && s[at] == ' ')
            blank = at;
        if (at > from && s[at] == '|')
            bar = at + 1;
    }
    if (at == n || s[at] == ' ' || blank || bar)
        return at == n || s[at] == ' ' ? at : blank ? blank : bar;
    return at + strcspn(s + at, " |\n") + (s[at + strcspn(s + at, " |\n")] == '|');
}

static void print(const char *text, uint32_t width, FILE *out)
{
    while (*text) {
        size_t n = strcspn(text, "\n"), indent = hanging(text, n, width), column = 0, from = indent;
        for (;;) {
            size_t end = cut(text, n, width - column, from), shown = end;
            while (shown && text[shown - 1] == ' ')
                shown--;
            fwrite(text, 1, shown, out);
            end += strspn(text + end, " ");
            text += end;
            n -= end;
            if (!n)
                break;
            fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
            from = 0;
        }
        fputc('\n', out);
        text += *text == '\n';
    }
}

FILE *fitted_open(struct fitted *f)
{
    *f = (struct fitted){0};
    f->stream = open_memstream(&f->text, &f->size);
    return f->stream;
}

void fitted_close(struct fitted *f, uint32_t width, FILE *out)
{
    fclose(f->stream);
    print(f->text, width, out);
    free(f->text);
}
