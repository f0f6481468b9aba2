/* plan.json by jansson. */

#include "runtime/planned.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static bool read_role(const json_t *from, struct planned_role *r)
{
    json_t *list = json_object_get(from, "for"), *one;
    size_t i;
    r->waits = json_number_value(json_object_get(from, "waits"));
    r->transfers = json_number_value(json_object_get(from, "transfers"));
    json_array_foreach(list, i, one)
    {
        if (r->n == PLANNED_FOR || !json_is_integer(json_array_get(one, 0)))
            return false;
        r->most[r->n].role = (uint32_t)json_integer_value(json_array_get(one, 0));
        r->most[r->n++].share = json_number_value(json_array_get(one, 1));
    }
    return json_is_number(json_object_get(from, "waits")) && json_is_number(json_object_get(from, "transfers"));
}

void planned_read(struct planned *p, const char *json, uint32_t nroles)
{
    json_t *all = json ? json_loads(json, 0, NULL) : NULL, *predicted = json_object_get(all, "predicted"),
           *waiting = json_object_get(all, "waiting");
    *p = (struct planned){.step_s = json_number_value(json_object_get(predicted, "step_time_s")),
                          .mfu = json_number_value(json_object_get(predicted, "mfu"))};
    bool fine = json_array_size(waiting) == nroles && (p->roles = calloc(nroles, sizeof *p->roles));
    for (uint32_t r = 0; fine && r < nroles; r++)
        fine = read_role(json_array_get(waiting, r), &p->roles[r]);
    p->nroles = fine ? nroles : 0;
    json_decref(all);
}

void planned_free(struct planned *p)
{
    free(p->roles);
    *p = (struct planned){0};
}

double planned_for(const struct planned *p, uint32_t role, uint32_t whom)
{
    if (role >= p->nroles)
        return NAN;
    for (uint32_t i = 0; i < p->roles[role].n; i++)
        if (p->roles[role].most[i].role == whom)
            return p->roles[role].most[i].share;
    return 0;
}
