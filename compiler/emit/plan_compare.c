/* Two JSON values key by key: every key that is missing, not wanted, or has another value; lists of equal length by
 * place. */

#include "compiler/emit/plan.h"

#include "compiler/support/strbuf.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_KEY = 256 };

/* as people write it: reals with as many digits as it takes to read them back */
static void value_text(const json_t *v, struct strbuf *out)
{
    if (json_is_real(v)) {
        strbuf_json_number(out, json_real_value(v));
        return;
    }
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    strbuf_text(out, text ? text : "?");
    free(text);
}

/* both as text; NULL says that there is none */
static void report_values(const json_t *is, const json_t *wanted, const char *key, plan_json_report *report,
                          void *context)
{
    struct strbuf x = {0}, y = {0};
    if (is)
        value_text(is, &x);
    if (wanted)
        value_text(wanted, &y);
    report(context, key, x.text, y.text);
    strbuf_free(&x);
    strbuf_free(&y);
}

static void compare_objects(const json_t *is, const json_t *wanted, const char *key, plan_json_report *report,
                            void *context)
{
    const char *name;
    json_t *value;
    char inner[MOST_KEY];
    json_object_foreach((json_t *)wanted, name, value)
    {
        snprintf(inner, sizeof inner, "%s%s%s", key, *key ? "." : "", name);
        plan_json_compare(json_object_get(is, name), value, inner, report, context);
    }
    json_object_foreach((json_t *)is, name, value)
    {
        snprintf(inner, sizeof inner, "%s%s%s", key, *key ? "." : "", name);
        if (!json_object_get(wanted, name))
            plan_json_compare(value, NULL, inner, report, context);
    }
}

void plan_json_compare(const json_t *is, const json_t *wanted, const char *key, plan_json_report *report, void *context)
{
    char inner[MOST_KEY];
    if (is && wanted && json_is_object(is) && json_is_object(wanted)) {
        compare_objects(is, wanted, key, report, context);
    } else if (is && wanted && json_is_array(is) && json_is_array(wanted) &&
               json_array_size(is) == json_array_size(wanted)) {
        for (size_t i = 0; i < json_array_size(is); i++) {
            snprintf(inner, sizeof inner, "%s[%zu]", key, i);
            plan_json_compare(json_array_get(is, i), json_array_get(wanted, i), inner, report, context);
        }
    } else if (!is || !wanted || !json_equal(is, wanted)) {
        report_values(is, wanted, key, report, context);
    }
}
