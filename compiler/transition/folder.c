/* A transition as a folder.  Its programs are files like a plan's; transition.json says which two plans it belongs to,
 * what every rank is in them, and what it costs. */

#include "compiler/transition/transition.h"

#include "compiler/support/strbuf.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static void print_seats(const struct transition *t, const char *key, bool old, struct strbuf *out)
{
    strbuf_printf(out, "  \"%s\": [", key);
    for (uint32_t i = 0; i < t->ranks->nranks; i++) {
        uint32_t rank = old ? t->seats[i].from : t->seats[i].to;
        strbuf_text(out, i ? ", " : "");
        strbuf_json(out, rank == NONE ? "-1" : "%u", rank);
    }
    strbuf_text(out, "]");
}

void transition_json(const struct transition *t, struct strbuf *out)
{
    struct transition_cost c = transition_cost(t);
    strbuf_json(out, "{\n  'schema': 1,\n  'compiler': %s,\n  'from': %s,\n  'to': %s,\n  'lost_node': ", LLMC_VERSION,
                t->from_hash, t->to_hash);
    strbuf_json(out, t->lost == NONE ? "null" : "%u", t->lost);
    strbuf_json(
        out,
        ",\n  'ranks': %u,\n  'roles': %u,\n  'predicted': {'seconds': %g, 'messages': %lu, "
        "'bytes_within_nodes': %lu, 'bytes_between_nodes': %lu, 'bytes_on_ranks': %lu, 'peak_memory_bytes': %lu, "
        "'peak_memory_rank': %u},\n",
        t->ranks->nranks, t->nroles, c.seconds, c.messages, c.near_bytes, c.far_bytes, c.local_bytes, c.peak_bytes,
        c.peak_rank);
    print_seats(t, "from_ranks", true, out);
    strbuf_text(out, ",\n");
    print_seats(t, "to_ranks", false, out);
    strbuf_text(out, "\n}\n");
}

static enum status each(const void *what, plan_take *take, void *context, struct error *error)
{
    const struct transition *t = what;
    struct strbuf json = {0};
    transition_json(t, &json);
    const struct plan_file text = {"transition.json", json.text, json.length};
    enum status s = plan_emit_files(&text, t->programs, t->nroles, t->ranks, take, context, error);
    strbuf_free(&json);
    return s;
}

enum status transition_write(const struct transition *t, const char *dir, bool force, struct error *error)
{
    return plan_write_folder(each, t, dir, force, error);
}

static const struct plan_file *find(const struct plan_file *files, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(files[i].name, name))
            return &files[i];
    return NULL;
}

static bool read_seats(struct transition *t, const json_t *root, const char *key, bool old)
{
    const json_t *list = json_object_get(root, key);
    uint32_t most = (old ? t->from : t->to)->ranks->nranks;
    if (!json_is_array(list) || json_array_size(list) != t->ranks->nranks)
        return false;
    for (uint32_t i = 0; i < t->ranks->nranks; i++) {
        json_int_t v = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)) || v < -1 || v >= (json_int_t)most)
            return false;
        *(old ? &t->seats[i].from : &t->seats[i].to) = v < 0 ? NONE : (uint32_t)v;
        if (old)
            t->seats[i].base = v < 0 ? 0 : transition_arena(t->from, (uint32_t)v);
    }
    return true;
}

static bool read_lost(struct transition *t, const json_t *root)
{
    const json_t *lost = json_object_get(root, "lost_node");
    json_int_t node = json_integer_value(lost);
    t->lost = json_is_integer(lost) ? (uint32_t)node : NONE;
    return json_is_null(lost) || (json_is_integer(lost) && node >= 0 && node < (json_int_t)t->from->topo->nnodes);
}

static enum status take_json(struct transition *t, const char *dir, const struct plan_file *f, struct error *error)
{
    json_error_t where;
    json_t *root = json_loadb(f->bytes, f->size, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return error_set(error, STATUS_INPUT, "%s/transition.json: %s", dir, where.text);
    const char *from = json_string_value(json_object_get(root, "from")),
               *to = json_string_value(json_object_get(root, "to"));
    enum status s = STATUS_OK;
    if (!from || strcmp(from, t->from_hash) != 0)
        s = error_set(error, STATUS_INPUT, "%s is for another first plan", dir);
    else if (!to || strcmp(to, t->to_hash) != 0)
        s = error_set(error, STATUS_INPUT, "%s is for another second plan", dir);
    else if (!read_lost(t, root))
        s = error_set(error, STATUS_INPUT, "%s/transition.json: lost_node is no node of the first plan", dir);
    else if (!read_seats(t, root, "from_ranks", true) || !read_seats(t, root, "to_ranks", false))
        s = error_set(error, STATUS_INPUT, "%s/transition.json: its ranks are malformed", dir);
    json_decref(root);
    return s;
}

static enum status read_programs(struct arena *a, struct transition *t, const char *dir, const struct plan_file *files,
                                 uint32_t n, struct error *error)
{
    char name[64];
    t->nroles = t->ranks->nroles;
    if (t->nroles > t->ranks->nranks)
        return error_set(error, STATUS_INPUT, "%s/ranks.bin has more roles than ranks", dir);
    t->programs = ARENA_ARRAY(a, struct program *, t->nroles + 1);
    for (uint32_t i = 0; i < t->nroles; i++) {
        snprintf(name, sizeof name, "programs/%u.bin", i);
        const struct plan_file *f = find(files, n, name);
        if (!f)
            return error_set(error, STATUS_INPUT, "%s/MANIFEST does not list %s", dir, name);
        enum status s = program_decode(f->bytes, f->size, &t->programs[i], error);
        if (s == STATUS_OK && t->programs[i]->role != i)
            return error_set(error, STATUS_INPUT, "%s/%s is the program of another role", dir, name);
        if (s != STATUS_OK)
            return error_set(error, s, "%s/%s: %s", dir, name, error->text);
    }
    return STATUS_OK;
}

enum status transition_read(struct arena *a, const char *dir, const struct plan *from, const struct plan *to,
                            struct transition **out, struct error *error)
{
    struct transition *t = *out = ARENA_NEW(a, struct transition);
    const struct plan_file *files;
    uint32_t n;
    *t = (struct transition){.from = from, .to = to};
    transition_hash(from, t->from_hash);
    transition_hash(to, t->to_hash);
    TRY(plan_read_folder(a, dir, &files, &n, error));
    const struct plan_file *json = find(files, n, "transition.json"), *ranks = find(files, n, "ranks.bin");
    if (!json || !ranks)
        return error_set(error, STATUS_INPUT, "%s is no transition ('llmc transition PLAN PLAN -o DIR' makes one)",
                         dir);
    enum status s = ranks_decode(ranks->bytes, ranks->size, &t->ranks, error);
    if (s != STATUS_OK)
        return error_set(error, s, "%s/ranks.bin: %s", dir, error->text);
    t->seats = ARENA_ARRAY(a, struct seat, t->ranks->nranks + 1);
    TRY(take_json(t, dir, json, error));
    return read_programs(a, t, dir, files, n, error);
}
