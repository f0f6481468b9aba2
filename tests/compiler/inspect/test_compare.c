/* `diff` of two plans: it names exactly the keys whose values differ and counts exactly the programs that do, by another
 * walk over plan.json and by the folders' bytes. */

#include "compiler/inspect/compare.h"
#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- the other walk ---- */

/* Adds every leaf of a value to a flat object: "decision.nodes[0][1]" and its text.  A list of another length than the other
 * plan's counts as one value, as does what is no list there. */
static void flatten(json_t *flat, const json_t *v, const json_t *other, const char *key)
{
    char inner[300];
    const char *name;
    json_t *value;
    if (json_is_object(v) && json_is_object(other)) {
        json_object_foreach((json_t *)v, name, value)
        {
            snprintf(inner, sizeof inner, "%s%s%s", key, *key ? "." : "", name);
            flatten(flat, value, json_object_get(other, name), inner);
        }
    } else if (json_is_array(v) && json_is_array(other) && json_array_size(v) == json_array_size(other)) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            snprintf(inner, sizeof inner, "%s[%zu]", key, i);
            flatten(flat, json_array_get(v, i), json_array_get(other, i), inner);
        }
    } else {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_SORT_KEYS);
        json_object_set_new(flat, key, json_string(text));
        free(text);
    }
}

static json_t *plan_object(const struct plan *p)
{
    struct strbuf b = {0};
    plan_json(p, false, &b);
    json_t *v = json_loads(b.text, 0, NULL);
    strbuf_free(&b);
    for (int i = 0; i < 3; i++)
        json_object_del(v, (const char *const[]){"compiler", "predicted", "search"}[i]);
    return v;
}

/* keys of one of the two with another value in the other, or none */
static json_t *differing(const struct plan *x, const struct plan *y)
{
    json_t *a = plan_object(x), *b = plan_object(y), *one = json_object(), *two = json_object(), *keys = json_object();
    const char *key;
    json_t *value;
    flatten(one, a, b, "");
    flatten(two, b, a, "");
    json_object_foreach(one, key, value) if (!json_equal(value, json_object_get(two, key)))
        json_object_set_new(keys, key, json_true());
    json_object_foreach(two, key, value) if (!json_object_get(one, key)) json_object_set_new(keys, key, json_true());
    json_decref(a);
    json_decref(b);
    json_decref(one);
    json_decref(two);
    return keys;
}

struct hashes {
    json_t *of; /* training programs: name and contents */
};
static enum status take(void *context, const struct plan_file *f, struct error *error)
{
    struct hashes *h = context;
    (void)error;
    if (!strncmp(f->name, "programs/", 9) && strncmp(f->name, "programs/eval", 13))
        json_object_set_new(h->of, f->name, json_stringn_nocheck(f->bytes, f->size));
    return STATUS_OK;
}

static uint32_t programs_differing(const struct plan *x, const struct plan *y)
{
    struct hashes a = {json_object()}, b = {json_object()};
    struct error error;
    uint32_t n = 0;
    const char *key;
    json_t *value;
    CU_ASSERT(plan_each_file(x, take, &a, &error) == STATUS_OK && plan_each_file(y, take, &b, &error) == STATUS_OK);
    json_object_foreach(a.of, key, value) n += !json_equal(value, json_object_get(b.of, key));
    json_object_foreach(b.of, key, value) n += !json_object_get(a.of, key);
    json_decref(a.of);
    json_decref(b.of);
    return n;
}

/* ---- tests ---- */

static void check_pair(struct arena *a, const struct plan *x, const struct plan *y)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    uint32_t n = compare_plans(a, x, y, true, f);
    fclose(f);
    json_t *said = json_loads(text, 0, NULL), *wanted = differing(x, y);
    CU_ASSERT_PTR_NOT_NULL_FATAL(said);
    const json_t *list = json_object_get(said, "differences");
    CU_ASSERT_EQUAL(json_array_size(list), json_object_size(wanted));
    for (size_t i = 0; i < json_array_size(list); i++)
        CU_ASSERT_PTR_NOT_NULL(
            json_object_get(wanted, json_string_value(json_object_get(json_array_get(list, i), "key"))));
    uint32_t programs = programs_differing(x, y);
    CU_ASSERT_EQUAL(json_integer_value(json_object_get(said, "programs")), programs);
    CU_ASSERT_EQUAL(n, json_object_size(wanted) + programs);
    json_decref(said);
    json_decref(wanted);
    free(text);
}

static void test_pairs(void)
{
    uint32_t pairs = test_draws(200, 20);
    for (uint32_t seed = 1; seed <= pairs; seed++) {
        struct arena *a = arena_new();
        struct plan *x = random_plan(a, seed, 8), *y = seed % 4 ? NULL : random_plan(a, seed + 1000, 8);
        uint64_t state = seed;
        struct decision d;
        const char *why;
        if (!y) { /* the same job, decided otherwise */
            d = random_decision(a, &state, x->job, x->topo, 8);
            y = compile_decision(a, x->job, x->topo, &d, &(struct compile_options){0}, &why);
        }
        CU_ASSERT_PTR_NOT_NULL_FATAL(y);
        check_pair(a, x, y);
        check_pair(a, x, x);
        plan_close(x);
        plan_close(y);
        arena_free(a);
    }
}

void suite_compare(void);
void suite_compare(void)
{
    CU_pSuite s = CU_add_suite("compare", NULL, NULL);
    CU_add_test(s, "differences of drawn pairs", test_pairs);
}
