/* Reading planned times: numbers separated by white space, every one of them checked against the programs. */

#include "runtime/planned_times.h"
#include "runtime/file.h"

#include <stdlib.h>
#include <string.h>

/* a duration below 2^50 ns, a fortnight */
static bool read_number(FILE *f, int64_t *out)
{
    long long n;
    if (fscanf(f, "%18lld", &n) != 1 || n < 0 || n >= (int64_t)1 << 50)
        return false;
    *out = n;
    return true;
}

static enum status read_roles(FILE *f, const char *path, const struct program *const *programs,
                              struct planned_times *out, struct error *error)
{
    for (uint32_t r = 0; r < out->nroles; r++) {
        int64_t n;
        if (!read_number(f, &n) || n != programs[r]->ninsns)
            return error_set(error, STATUS_INPUT, "%s: it is not of this plan", path);
        out->ns[r] = calloc((size_t)n + 1, sizeof **out->ns);
        for (int64_t i = 0; out->ns[r] && i < n; i++)
            if (!read_number(f, &out->ns[r][i]))
                return error_set(error, STATUS_INPUT, "%s: a time is missing or out of range", path);
        if (!out->ns[r])
            return STATUS_WORLD;
    }
    return STATUS_OK;
}

enum status planned_times_read(const char *path, const struct program *const *programs, uint32_t nroles,
                               struct planned_times *out, struct error *error)
{
    char magic[16] = "";
    int64_t version = 0, roles = 0;
    FILE *f;
    const char *why = file_read(path, &f);
    *out = (struct planned_times){0};
    if (why)
        return error_set(error, STATUS_INPUT, "%s: %s", path, why);
    enum status st = STATUS_OK;
    if (fscanf(f, "%15s", magic) != 1 || strcmp(magic, "llmc-times") || !read_number(f, &version) || version != 1 ||
        !read_number(f, &roles) || !read_number(f, &out->step_ns))
        st = error_set(error, STATUS_INPUT, "%s: it does not hold planned times ('llmc trace DIR --times' writes them)",
                       path);
    else if (roles != nroles)
        st = error_set(error, STATUS_INPUT, "%s: it is not of this plan", path);
    if (st == STATUS_OK) {
        out->nroles = nroles;
        out->ns = calloc(nroles + 1u, sizeof *out->ns);
        st = out->ns ? read_roles(f, path, programs, out, error) : STATUS_WORLD;
    }
    fclose(f);
    return st;
}

void planned_times_free(struct planned_times *p)
{
    for (uint32_t r = 0; p->ns && r < p->nroles; r++)
        free(p->ns[r]);
    free(p->ns);
    *p = (struct planned_times){0};
}
