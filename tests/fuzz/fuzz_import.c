/* Files that models are imported from: the first byte says whether something is left out or set, the rest is the file, of
 * whatever form it looks like.  Importing ends in errors, or in text that the language reads. */

#include "compiler/import/import.h"
#include "compiler/model/sema.h"
#include "tests/fuzz/common.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sets[] = {"vocab-size=512", "TP=2", "WORLD_SIZE=8", "global-batch-size=8"};
    if (!size)
        return 0;
    struct arena *a = empty_arena();
    struct diag *d = diag_new(a);
    struct source s = {.name = "fuzz", .text = arena_strndup(a, (const char *)data + 1, size - 1), .size = size - 1};
    struct import_options o = {.name = "fuzz", .left_out = data[0] & 1 ? "spec,fp8-param-gather" : NULL};
    o.sets = sets;
    o.nsets = data[0] & 2 ? sizeof sets / sizeof *sets : 0;
    char *text = import_model(a, d, &s, &o);
    require(!text == (diag_errors(d) > 0));
    struct source own = {.name = "model.llm", .text = text, .size = text ? strlen(text) : 0};
    if (text)
        job_parse(a, d, &own, NULL, 0);
    diag_print(d, nowhere(), false);
    return 0;
}
