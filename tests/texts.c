#include "tests/texts.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>

char *text_of_diag(struct arena *a, const struct diag *d, bool colour)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    diag_print(d, out, colour);
    fclose(out);
    char *copy = arena_strndup(a, text, size);
    free(text);
    return copy;
}

void text_is_golden(const char *text, const char *path)
{
    FILE *f = getenv("UPDATE") ? fopen(path, "w") : NULL;
    if (f) {
        fputs(text, f);
        fclose(f);
    }
    size_t size = strlen(text);
    char *want = malloc(size + 2); /* one more than it may be */
    f = fopen(path, "r");
    CU_ASSERT_FATAL(want && f);
    want[fread(want, 1, size + 1, f)] = 0;
    fclose(f);
    if (strcmp(text, want) != 0)
        printf("\n%swanted %s", text, path);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(want);
}
