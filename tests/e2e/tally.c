/* Rows are named by the first item; the others come in the same order, so a row is known by its number. */

#include "tests/e2e/tally.h"

#include <stdio.h>
#include <string.h>

void tally_item(struct tally *t)
{
    t->items++;
    t->at = 0;
}

void tally_row(struct tally *t, const char *dimension, const char *name, bool has)
{
    if (t->at >= TALLY_ROWS)
        return;
    if (t->at == t->nrows) {
        t->dimension[t->nrows] = dimension;
        snprintf(t->name[t->nrows++], sizeof t->name[0], "%s", name);
    }
    t->count[t->at++] += has;
}

void tally_number(struct tally *t, const char *dimension, const uint32_t *values, uint32_t n, uint32_t value)
{
    for (uint32_t i = 0; i < n; i++) {
        char name[12];
        snprintf(name, sizeof name, "%u", values[i]);
        tally_row(t, dimension, name, values[i] == value);
    }
}

void tally_add(struct tally *to, const struct tally *t)
{
    if (!to->nrows) {
        *to = *t;
        return;
    }
    to->items += t->items;
    for (uint32_t i = 0; i < t->nrows; i++)
        to->count[i] += t->count[i];
}

void tally_print(const struct tally *t, const char *items)
{
    printf("\n    %u %s, of these with", t->items, items);
    for (uint32_t i = 0, column = 0; i < t->nrows; i++) {
        char text[48];
        if (!i || strcmp(t->dimension[i], t->dimension[i - 1])) {
            printf("\n    %-24s", t->dimension[i]);
            column = 24;
        }
        int n = snprintf(text, sizeof text, "%s: %u", t->name[i], t->count[i]);
        if (column + (uint32_t)n + 2 > 110) {
            printf("\n    %-24s", "");
            column = 24;
        }
        column += (uint32_t)printf("%s%s", column > 24 ? ", " : "", text);
    }
    printf("\n");
}

uint32_t tally_rare(const struct tally *t, uint32_t least)
{
    uint32_t rare = !t->items;
    for (uint32_t i = 0; i < t->nrows; i++)
        if (t->count[i] < least) {
            printf("\n    %s %s occurs %u times", t->dimension[i], t->name[i], t->count[i]);
            rare++;
        }
    return rare;
}
