/* The language front end under libFuzzer: parse, check, count, format; no input may crash it, and what is
 * accepted must survive its own printing.  Lines `# set KEY=VALUE` at the top are overrides, as in tests/bad.
 */

#include "compiler/model/fmt.h"
#include "compiler/model/parse.h"
#include "compiler/model/sema.h"
#include "tests/fuzz/common.h"

#include <string.h>

#define SETS_MAX 4

/* the canonical text is a fixed point */
static void format(struct arena *a, const struct source *s)
{
    struct diag *d = diag_new(a);
    char *once = fmt_text(a, d, s);
    if (!once)
        return;
    struct source again = {.name = "again", .text = once, .size = strlen(once)};
    if (again.size > PARSE_SIZE_MAX)
        return;
    char *twice = fmt_text(a, d, &again);
    require(twice && !strcmp(once, twice));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena *a = empty_arena();
    struct diag *d = diag_new(a);
    struct source s = {.name = "fuzz", .text = arena_strndup(a, (const char *)data, size), .size = size};
    const char *sets[SETS_MAX];
    uint32_t nsets = 0;
    for (const char *at = s.text; nsets < SETS_MAX && !strncmp(at, "# set ", 6) && strchr(at, '\n');
         at += strcspn(at, "\n") + 1)
        sets[nsets++] = arena_strndup(a, at + 6, strcspn(at + 6, "\n"));
    struct job *j = job_parse(a, d, &s, sets, nsets);
    if (j) {
        const char *what;
        struct span where;
        require(model_active_parameters(&j->model) <= model_parameters(&j->model));
        require(model_flops(&j->model, j->train.sequence, j->train.batch) > 0);
        model_predict_parameters(&j->model);
        model_unsupported(j, &what, &where);
    }
    require(j ? !diag_errors(d) : diag_errors(d) > 0);
    diag_print(d, nowhere(), true);
    diag_print_json(d, nowhere());
    format(a, &s);
    return 0;
}
