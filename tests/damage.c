#include "tests/damage.h"

#include <CUnit/CUnit.h>
#include <string.h>

static uint64_t next(uint64_t *state)
{
    return *state = *state * 6364136223846793005u + 1442695040888963407u;
}

void damage_all(const struct damage_text *texts, uint32_t n, uint32_t each, const char *bytes,
                bool (*take)(const struct damage *d, void *with), void *with)
{
    struct arena *scratch = arena_new();
    uint32_t taken = 0, failed = 0;
    uint64_t state = 1;
    for (uint32_t i = 0; i < n * each; i++) {
        struct arena_mark mark = arena_mark(scratch);
        struct damage d = {.scratch = scratch, .which = i % n, .size = texts[i % n].size};
        char *text = arena_strndup(scratch, texts[i % n].text, d.size);
        uint32_t changes = i / n % 5;
        for (uint32_t k = 0; k < changes; k++) {
            uint64_t draw = next(&state);
            text[(draw >> 33) % d.size] = bytes[(draw >> 20) % strlen(bytes)];
        }
        if (!changes)
            d.size = (next(&state) >> 24) % d.size;
        text[d.size] = 0;
        d.text = text;
        bool took = take(&d, with);
        taken += took;
        failed += !took;
        arena_reset(scratch, mark);
    }
    CU_ASSERT(taken > n && failed > n);
    arena_free(scratch);
}
