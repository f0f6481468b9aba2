/* See table.h. */

#include "tests/bench/table.h"
#include "compiler/support/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cuts text at tabs, in place */
static uint32_t fields_of(char *text, const char **fields)
{
    uint32_t n = 0;
    for (char *rest = text; rest && n < TABLE_COLUMNS;)
        fields[n++] = strsep(&rest, "\t");
    return n;
}

static void add_block(struct arena *a, struct table_block **block, char *text)
{
    const char *fields[TABLE_COLUMNS];
    uint32_t n = fields_of(text, fields);
    *block = ARENA_NEW(a, struct table_block);
    **block = (struct table_block){.kind = fields[0], .ncolumns = n - 1};
    for (uint32_t i = 1; i < n; i++)
        (*block)->columns[i - 1] = fields[i];
}

struct table_line *table_read(struct arena *a, const char *folder, uint32_t *nlines)
{
    FILE *f = fopen(arena_printf(a, "%s/micro.tsv", folder), "r");
    char *line = NULL;
    size_t room = 0;
    uint32_t n = 0, most = 256;
    struct table_line *lines = ARENA_ARRAY(a, struct table_line, most);
    struct table_block *block = NULL;
    while (f && getline(&line, &room, f) > 0) {
        char *text = arena_strdup(a, line);
        text[strcspn(text, "\n")] = '\0';
        if (text[0] == '@') {
            add_block(a, &block, text + 1);
        } else if (text[0] != '#' && block) {
            if (n == most) {
                struct table_line *more = ARENA_ARRAY(a, struct table_line, 2 * most);
                memcpy(more, lines, n * sizeof *more);
                lines = more;
                most *= 2;
            }
            lines[n] = (struct table_line){.block = block};
            fields_of(text, lines[n++].fields);
        }
    }
    free(line);
    *nlines = n;
    if (!f)
        return NULL;
    fclose(f);
    return lines;
}

const char *table_word(const struct table_line *line, const char *column)
{
    for (uint32_t i = 0; i < line->block->ncolumns; i++)
        if (!strcmp(line->block->columns[i], column))
            return line->fields[i] && strcmp(line->fields[i], "-") ? line->fields[i] : "";
    return "";
}

double table_number(const struct table_line *line, const char *column)
{
    return strtod(table_word(line, column), NULL);
}
