/* Units by the name of their tensor: open addressing, FNV-1a. */

#include "compiler/verify/reference.h"

#include <string.h>

static uint32_t name_hash(const char *s)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

uint32_t reference_unit(const struct reference *r, const char *name)
{
    for (uint32_t i = name_hash(name) & (r->table_room - 1); r->table[i]; i = (i + 1) & (r->table_room - 1))
        if (!strcmp(r->units[r->table[i] - 1].name, name))
            return r->table[i] - 1;
    return NONE;
}

void reference_index(struct arena *a, struct reference *r)
{
    for (r->table_room = 64; r->table_room < 2 * r->nunits;)
        r->table_room *= 2;
    r->table = ARENA_ARRAY(a, uint32_t, r->table_room);
    for (uint32_t u = 0; u < r->nunits; u++) {
        if (reference_unit(r, r->units[u].name) != NONE)
            continue;
        uint32_t i = name_hash(r->units[u].name) & (r->table_room - 1);
        while (r->table[i])
            i = (i + 1) & (r->table_room - 1);
        r->table[i] = u + 1;
    }
}
