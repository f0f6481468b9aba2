/* The words `target`, `profile` and `adjust`: which software stack will run the plan, whose numbers the prediction
 * uses if not that stack's own, in which of them the user's differ, and what the stack does where the plan block
 * leaves it open. */

#include "compiler/model/check.h"
#include "compiler/model/means.h"
#include "compiler/model/sema.h"
#include "compiler/target/target.h"

#include <stdio.h>
#include <string.h>

static const struct profile_param *param_of(struct check *c, const struct item *name)
{
    const char *names[PROFILE_PARAMS];
    size_t n;
    const struct profile_param *all = profile_params(&n), *at = profile_param(name->expr->text);
    for (size_t i = 0; !at && i < n; i++)
        names[i] = all[i].name;
    if (!at)
        check_unknown(c, name->span, "parameter of a profile", name->expr->text, names,
                      diag_nearest(name->expr->text, names, n) ? n : 0);
    return at;
}

/* PARAMETER = NUMBER, in the parameter's bounds; false after an error */
bool sema_adjust(struct check *c, const struct entry *e, const struct wishes *w, struct profile_adjust *out)
{
    const struct item *name = e->stmt->items, *number = name ? name->next : NULL;
    if (!number || number->next || name->relop != RELOP_NONE || number->relop != RELOP_EQ ||
        name->expr->kind != EXPR_NAME) {
        diag_error(c->diag, e->stmt->span, "form", "'adjust' is written adjust %s", e->row->words);
        return false;
    }
    const struct profile_param *at = param_of(c, name);
    if (!at)
        return false;
    for (uint32_t i = 0; i < w->nadjusts; i++)
        if (w->adjusts[i].param == at) {
            diag_error(c->diag, name->span, "twice", "'%s' is adjusted twice", at->name);
            return false;
        }
    struct value v = check_eval(c, e->env, number->expr);
    if (v.kind == VALUE_BAD)
        return false;
    double value = v.kind == VALUE_NUMBER && v.number.kind == UNITS_COUNT ? v.number.real : -1;
    if (!(value >= at->low && value <= at->high)) {
        diag_error(c->diag, number->span, "range", "%s must be a number from %g to %g", at->name, at->low, at->high);
        diag_caret(c->diag, "%s", at->meaning);
        return false;
    }
    *out = (struct profile_adjust){at, value};
    return true;
}

void job_emits(struct arena *a, struct job *job)
{
    struct wishes *w = &job->wishes;
    const char *player = w->target ? w->target->profile : TARGET_DEFAULT;
    if (w->emitted || (!job_is_modelled(job) && !strcmp(w->profile_name, player)))
        return;
    struct profile *own = ARENA_NEW(a, struct profile);
    if (job_is_modelled(job))
        w->emitted = w->profile;
    else if (profile_find(own, player))
        w->emitted = own;
}

/* the numbers of the profile's stack, as settings and then the user change them; false: there is no such profile */
static bool numbers_of(const struct job *job, struct profile *p)
{
    const struct wishes *w = &job->wishes;
    if (!profile_find(p, w->profile_name))
        return false;
    means_set(job, p);
    profile_adjust(p, w->adjusts, w->nadjusts);
    return true;
}

struct job *job_for_target(struct arena *a, const struct job *job, const char *target)
{
    struct job *own = ARENA_NEW(a, struct job);
    struct profile *p = ARENA_NEW(a, struct profile);
    *own = *job;
    own->wishes.target = target_find(a, target);
    own->wishes.profile_name = own->wishes.target->profile;
    own->wishes.profile = p;
    own->wishes.emitted = NULL;
    numbers_of(own, p);
    return own;
}

struct job *job_with_setting(struct arena *a, const struct job *job, enum target_row row, uint32_t bit)
{
    struct job *own = ARENA_NEW(a, struct job);
    struct profile *p = ARENA_NEW(a, struct profile);
    struct setting_wish *settings = ARENA_ARRAY(a, struct setting_wish, TARGET_ROWS);
    *own = *job;
    if (job->wishes.settings)
        memcpy(settings, job->wishes.settings, TARGET_ROWS * sizeof *settings);
    settings[row].bit = bit;
    own->wishes.settings = settings;
    own->wishes.profile = p;
    own->wishes.emitted = job->wishes.emitted ? p : NULL;
    numbers_of(own, p);
    return own;
}

static void sema_target(struct check *c, const struct binding *words, struct wishes *w)
{
    w->targeted = bound_set(words, "target") || bound_set(words, "profile");
    w->target = target_find(c->arena, bound_name(words, "target"));
    struct setting_wish *settings = ARENA_ARRAY(c->arena, struct setting_wish, TARGET_ROWS);
    for (enum target_row row = TARGET_SETTINGS; row < TARGET_ROWS; row++) /* 'auto' is no word of them */
        settings[row] = (struct setting_wish){target_bit(row, bound_name(words, target_row_name(row))),
                                              bound_find(words, target_row_name(row))->value.span};
    w->settings = settings;
    w->profile_name = bound_set(words, "profile") ? bound_name(words, "profile")
                      : w->target                 ? w->target->profile
                                                  : TARGET_DEFAULT;
}

void sema_profile(struct check *c, const struct binding *words, struct wishes *w)
{
    struct profile *p = ARENA_NEW(c->arena, struct profile);
    sema_target(c, words, w);
    w->profile = p;
    if (numbers_of(c->job, p)) {
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
    diag_error(c->diag, bound_find(words, "profile")->value.span, "unknown", "unknown profile '%s'", w->profile_name);
    const char *near = diag_nearest(w->profile_name, names, n);
    if (near)
        diag_caret(c->diag, "did you mean \"%s\"?", near);
    diag_help(c->diag, "profiles: %s", list);
}
