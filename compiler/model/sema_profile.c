/* The word `profile`: which software stack the prediction is for, and what that stack does where the plan
 * block leaves it open. */

#include "compiler/model/check.h"

#include <stdio.h>
#include <string.h>

void sema_profile(struct check *c, const struct binding *words, struct wishes *w)
{
    struct profile *p = ARENA_NEW(c->arena, struct profile);
    w->profile_name = bound_name(words, "profile");
    w->profile = p;
    if (profile_find(p, w->profile_name)) {
        if (w->sequence_parallel == TRI_AUTO && p->sequence_parallel < 0.5)
            w->sequence_parallel = TRI_NO;
        return;
    }
    const char *names[16];
    size_t n = 0;
    char list[512] = "";
    for (; n < 16 && profile_name(n); n++) {
        names[n] = profile_name(n);
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s\"%s\"", n ? ", " : "", names[n]);
    }
    diag_error(c->diag, bound_find(words, "profile")->value.span, "unknown", "unknown profile '%s'",
               w->profile_name);
    const char *near = diag_nearest(w->profile_name, names, n);
    if (near)
        diag_caret(c->diag, "did you mean \"%s\"?", near);
    diag_help(c->diag, "profiles: %s", list);
}
