/* The `plan` block: wishes on degrees, schedule, recomputation, placement; and what of them can be told to be
 * impossible from the model alone.  Whether a plan exists for the cluster is the search's to say. */

#include "compiler/model/check.h"

#include <inttypes.h>
#include <string.h>

const char *const degree_names[NDEGREES] = {"tp",  "cp",   "pp",    "vpp",        "dp",  "ep",
                                            "etp", "zero", "shard", "microbatch", "gpus"};

static bool is_word(const struct item *item, const char *word)
{
    return item && item->relop == RELOP_NONE && item->expr->kind == EXPR_NAME && !strcmp(item->expr->text, word);
}

static void wrong_form(struct check *c, const struct entry *e)
{
    diag_error(c->diag, e->stmt->span, "form", "'%s' is written %s %s", e->row->name, e->row->name,
               *e->row->words ? e->row->words : "<= N, >= N, = N or in [N, ...]");
}

/* the single name behind a statement, or a list of names, as bits of the choices of `row` in order */
static bool names_of(struct check *c, const struct word *row, const struct value *v, uint32_t *bits)
{
    const struct value *at = v->kind == VALUE_LIST ? v->elements : v;
    uint32_t n = v->kind == VALUE_LIST ? v->n : 1;
    for (uint32_t i = 0; i < n; i++) {
        struct choice choice;
        uint32_t bit = 1;
        if (!check_takes(c, row, &at[i], at[i].span))
            return false;
        for (const char *next = row->words; vocab_choice(&next, &choice) && strcmp(choice.name, at[i].text) != 0;)
            bit <<= 1;
        if (*bits & bit) {
            diag_error(c->diag, at[i].span, "twice", "'%s' stands twice in the list", at[i].text);
            return false;
        }
        *bits |= bit;
    }
    return true;
}

/* ---- degrees ---- */

static bool wish_list(struct check *c, const struct entry *e, struct wish *w)
{
    const struct item *list = e->stmt->items->next;
    struct value v = list && list->relop == RELOP_NONE && !list->next ? check_eval(c, e->env, list->expr)
                                                                      : (struct value){0};
    if (v.kind != VALUE_LIST || !v.n) {
        if (v.kind != VALUE_BAD || !list || list->next)
            diag_error(c->diag, e->stmt->span, "form", "write '%s in [1, 2, 4]'", e->row->name);
        return false;
    }
    uint64_t *values = ARENA_ARRAY(c->arena, uint64_t, v.n);
    for (uint32_t i = 0; i < v.n; i++) {
        if (!check_takes(c, e->row, &v.elements[i], v.elements[i].span))
            return false;
        values[i] = v.elements[i].number.integer;
    }
    w->relation = REL_IN;
    w->list = values;
    w->nlist = v.n;
    w->span = v.span;
    return true;
}

static void sema_degree(struct check *c, const struct entry *e, struct wish *w)
{
    const struct item *item = e->stmt->items;
    if (is_word(item, "in")) {
        if (!wish_list(c, e, w))
            return;
    } else {
        const struct item *unit = item ? item->next : NULL;
        bool sequences = !strcmp(e->row->name, "microbatch") &&
                         (is_word(unit, "sequence") || is_word(unit, "sequences")) && !unit->next;
        if (!item || (unit && !sequences)) {
            wrong_form(c, e);
            return;
        }
        if (item->relop == RELOP_NONE || item->relop == RELOP_LT || item->relop == RELOP_GT) {
            diag_error(c->diag, item->span, "relation", "'%s' takes =, <=, >= or in [...]", e->row->name);
            if (item->relop == RELOP_NONE && item->expr->kind == EXPR_NUMBER)
                diag_caret(c->diag, "help: write %s = %s", e->row->name, item->expr->text);
            return;
        }
        struct value v = check_eval(c, e->env, item->expr);
        if (v.kind != VALUE_NUMBER && v.kind != VALUE_BAD) {
            diag_error(c->diag, v.span, "type", "'%s' must be a whole number", e->row->name);
            return;
        }
        if (!check_takes(c, e->row, &v, v.span))
            return;
        w->relation = item->relop == RELOP_EQ ? REL_EQ : item->relop == RELOP_LE ? REL_LE : REL_GE;
        w->value = v.number.integer;
        w->span = v.span;
    }
}

/* `memory <= 74GiB` and the like: the value's text read as the wanted kind */
static bool sema_limit(struct check *c, const struct entry *e, enum units_kind kind, struct value *v)
{
    const struct item *item = e->stmt->items;
    if (!item || item->next || (item->relop != RELOP_LE && item->relop != RELOP_EQ)) {
        wrong_form(c, e);
        return false;
    }
    *v = check_eval(c, e->env, item->expr);
    if (v->kind == VALUE_BAD)
        return false;
    struct units_error why = {{0}, {0}};
    struct units_value x;
    bool fine = v->kind == VALUE_NUMBER && v->number.kind == kind && v->number.real > 0;
    if (fine)
        return true;
    if (v->kind == VALUE_NUMBER && v->text)
        units_value(v->text, strlen(v->text), kind, &x, &why);
    diag_error(c->diag, v->span, "unit", "'%s' must be %s%s", e->row->name, units_kind_name(kind),
               v->kind == VALUE_NUMBER && v->number.kind == kind ? " above zero" : "");
    if (*why.hint)
        diag_caret(c->diag, "help: %s", why.hint);
    return false;
}

/* ---- schedule, recomputation ---- */

static bool sema_schedule_one(struct check *c, const struct value *v, struct schedule_wish *out, bool *runs)
{
    const struct word *row = vocab_find(SCOPE_schedules, "names");
    *out = (struct schedule_wish){.span = v->span};
    if (v->kind == VALUE_STRING) {
        out->kind = SCHED_FILE;
        out->file = v->text;
        *runs = true;
        return true;
    }
    struct word quiet = *row; /* a list runs if one of its schedules does, so '*' is judged by the caller */
    size_t before = c->plan_only.n;
    if (!check_takes(c, &quiet, v, v->span))
        return false;
    *runs = *runs || c->plan_only.n == before;
    c->plan_only.n = before;
    while (strcmp(schedule_name(out->kind), v->text) != 0)
        out->kind++;
    if (v->kind == VALUE_CALL) {
        struct binding b = check_bind(c, (enum scope)vocab_scope(v->text), v);
        out->group = (uint32_t)bound_count(&b, "group");
    }
    return true;
}

static void sema_schedule(struct check *c, const struct entry *e, struct wishes *w)
{
    const struct item *item = e->stmt->items;
    bool list = is_word(item, "in"), runs = false;
    if (list)
        item = item->next;
    struct value v = item && item->relop == RELOP_NONE && !item->next ? check_eval(c, e->env, item->expr)
                                                                      : (struct value){0};
    if (v.kind == VALUE_BAD || (v.kind == VALUE_LIST) != list || (list && !v.n) || v.kind == VALUE_NUMBER) {
        if (v.kind != VALUE_BAD || !item || item->relop != RELOP_NONE || item->next)
            wrong_form(c, e);
        return;
    }
    const struct value *at = list ? v.elements : &v;
    uint32_t n = list ? v.n : 1;
    struct schedule_wish *out = ARENA_ARRAY(c->arena, struct schedule_wish, n ? n : 1);
    for (uint32_t i = 0; i < n; i++)
        if (!sema_schedule_one(c, &at[i], &out[i], &runs))
            return;
    if (!runs)
        check_plan_only(c, e->stmt->span,
                        n == 1 ? arena_printf(c->arena, "schedule '%s'", at[0].text) : "these schedules");
    w->schedules = out;
    w->nschedules = n;
}

static void sema_recompute(struct check *c, const struct entry *e, struct wishes *w)
{
    struct value v;
    w->recompute_span = e->stmt->span;
    if (!check_one_item(c, e, &v))
        return;
    if (v.kind == VALUE_LIST) {
        w->recompute = RECOMPUTE_SELECTIVE;
        names_of(c, vocab_find(SCOPE_recomputes, "parts"), &v, &w->parts);
        return;
    }
    if (!check_takes(c, vocab_find(SCOPE_recomputes, "names"), &v, v.span))
        return;
    w->recompute = !strcmp(v.text, "none")   ? RECOMPUTE_NONE
                   : !strcmp(v.text, "full") ? RECOMPUTE_FULL
                   : !strcmp(v.text, "auto") ? RECOMPUTE_AUTO
                                             : RECOMPUTE_SELECTIVE;
    if (w->recompute == RECOMPUTE_SELECTIVE)
        w->parts = PART_CORE_ATTN;
    if (v.kind == VALUE_CALL) {
        struct binding b = check_bind(c, SCOPE_full, &v);
        w->recompute_layers = (uint32_t)bound_count(&b, "layers");
    }
}

/* ---- the smaller words ---- */

static void sema_offload(struct check *c, const struct entry *e, struct wishes *w)
{
    struct value v;
    w->offload_span = e->stmt->span;
    if (!check_one_item(c, e, &v) || (v.kind == VALUE_NAME && !strcmp(v.text, "none")))
        return;
    names_of(c, vocab_find(SCOPE_offloads, "names"), &v, &w->offload);
}

static void sema_overlap(struct check *c, const struct entry *e, struct wishes *w, bool never)
{
    const struct item *first = e->stmt->items;
    const struct item *x = never ? (first ? first->next : NULL) : first;
    const struct item *rest = x ? x->next : NULL;
    bool form = never ? is_word(first, "overlap") && x && !rest
                      : is_word(rest, "with") && is_word(rest->next, "compute") && !rest->next->next;
    if (!form || x->relop != RELOP_NONE) {
        wrong_form(c, e);
        return;
    }
    struct value v = check_eval(c, e->env, x->expr);
    uint32_t bits = 0;
    if (v.kind == VALUE_BAD || !names_of(c, vocab_find(SCOPE_overlaps, "names"), &v, &bits))
        return;
    if (bits & (never ? w->overlap : w->never_overlap))
        diag_error(c->diag, e->stmt->span, "relation", "overlap is both asked for and forbidden");
    *(never ? &w->never_overlap : &w->overlap) |= bits;
    if (!never)
        w->overlap_span = e->stmt->span;
}

static void sema_order(struct check *c, const struct entry *e, struct wishes *w)
{
    struct value v;
    uint32_t bits = 0;
    w->order_span = e->stmt->span;
    if (!check_one_item(c, e, &v))
        return;
    if (v.kind != VALUE_LIST) {
        wrong_form(c, e);
        return;
    }
    if (!names_of(c, vocab_find(SCOPE_axes, "orders"), &v, &bits))
        return;
    for (uint32_t i = 0; i < v.n && i < ARRAY_LEN(w->order); i++)
        w->order[w->norder++] = v.elements[i].text;
}

/* `keep 2GiB free`, also with a blank before the unit */
static void sema_keep_free(struct check *c, const struct entry *e, struct wishes *w)
{
    const struct item *first = e->stmt->items, *unit = first->next;
    struct units_error why = {{0}, {0}};
    struct units_value x = {0};
    if (first->relop != RELOP_NONE || unit->relop != RELOP_NONE || (unit->next && unit->next->next) ||
        (unit->next && unit->expr->kind != EXPR_NAME)) {
        wrong_form(c, e);
        return;
    }
    if (w->frees) {
        diag_error(c->diag, e->stmt->span, "twice", "'keep ... free' is said twice");
        diag_note(c->diag, w->free_span, "the first one");
        return;
    }
    w->free_span = e->stmt->span;
    struct value v = check_eval(c, e->env, first->expr);
    if (v.kind == VALUE_BAD)
        return;
    bool apart = unit->next != NULL, fine = v.kind == VALUE_NUMBER && !apart && v.number.kind == UNITS_BYTES;
    const char *text = v.kind == VALUE_NUMBER && v.text ? v.text : "";
    if (apart)
        text = arena_printf(c->arena, "%s%s", text, unit->expr->text);
    if (fine)
        x = v.number;
    else if (v.kind == VALUE_NUMBER)
        fine = *text && units_value(text, strlen(text), UNITS_BYTES, &x, &why);
    if (!fine) {
        diag_error(c->diag, v.span, "unit", "what is kept free must be %s", units_kind_name(UNITS_BYTES));
        if (*why.hint)
            diag_caret(c->diag, "help: %s", why.hint);
        return;
    }
    w->frees = true;
    w->free_bytes = x.whole ? x.integer : (uint64_t)x.real;
}

static bool sema_keep(struct check *c, const struct entry *e, struct keep_wish *k)
{
    const struct item *axis = e->stmt->items, *within = axis ? axis->next : NULL, *where = within ? within->next : NULL;
    const struct item *nodes = where ? where->next : NULL;
    if (!is_word(within, "within") || !where || where->relop != RELOP_NONE || axis->relop != RELOP_NONE ||
        (nodes && (nodes->next || !(is_word(nodes, "nodes") || is_word(nodes, "node"))))) {
        wrong_form(c, e);
        return false;
    }
    struct value a = check_eval(c, e->env, axis->expr), v = check_eval(c, e->env, where->expr);
    if (a.kind == VALUE_BAD || v.kind == VALUE_BAD || !check_takes(c, vocab_find(SCOPE_axes, "names"), &a, a.span))
        return false;
    *k = (struct keep_wish){.axis = a.text, .span = e->stmt->span};
    if (nodes)
        return check_count(c, &v, "nodes", 1, 1u << 24, &k->nodes);
    if (v.kind != VALUE_NAME && v.kind != VALUE_STRING) {
        diag_error(c->diag, v.span, "type", "'keep' needs node, scale_up, a tier's name or N nodes");
        return false;
    }
    k->within = v.text;
    return true;
}

static void sema_leave(struct check *c, const struct entry *e, struct wishes *w)
{
    const struct item *n = e->stmt->items, *sms = n ? n->next : NULL, *prep = sms ? sms->next : NULL,
                      *comm = prep ? prep->next : NULL;
    uint64_t count = 0;
    if (!is_word(sms, "sms") || !is_word(prep, "for") || !is_word(comm, "comm") || comm->next ||
        n->relop != RELOP_NONE) {
        wrong_form(c, e);
        return;
    }
    struct value v = check_eval(c, e->env, n->expr);
    if (check_count(c, &v, "leave", 0, 4096, &count))
        w->comm_sms = (uint32_t)count;
}

/* ---- relations that need no cluster ---- */

static bool divides_all(const struct model *m, uint64_t n, bool experts, const struct layer **which)
{
    for (uint32_t i = 0; i < model_all_layers(m); i++) {
        const struct layer *l = model_layer(m, i);
        if (i && l == model_layer(m, i - 1))
            continue;
        if (!experts ? l->attn.heads % n : l->is_moe && l->moe.experts % n) {
            *which = l;
            return false;
        }
    }
    return true;
}

/* the divisor of n next to v, downwards or upwards */
static uint64_t near_divisor(uint64_t n, uint64_t v, bool up)
{
    while (v > 1 && v < n && n % v)
        v = up ? v + 1 : v - 1;
    return v < n ? v : n;
}

/* the batch is dp replicas of whole microbatches */
static void check_batch(struct check *c, const struct wish *dp, const struct wish *mb)
{
    const struct job *j = c->job;
    uint64_t batch = j->train.batch, replicas = dp->relation == REL_EQ ? dp->value : 1;
    uint64_t sequences = mb->relation == REL_EQ ? mb->value : 1, group = replicas * sequences;
    if (!batch || batch % group == 0)
        return;
    bool both = dp->relation == REL_EQ && mb->relation == REL_EQ,
         by_microbatch = mb->relation == REL_EQ && batch % replicas == 0;
    diag_error(c->diag, mb->relation == REL_EQ ? mb->span : dp->span, "relation",
               "%s = %" PRIu64 " does not divide the batch of %" PRIu64 " sequences",
               both                     ? "dp * microbatch"
               : mb->relation == REL_EQ ? "microbatch"
                                        : "dp",
               group, batch);
    diag_note(c->diag, j->train.batch_span, "the batch");
    const char *name = by_microbatch ? "microbatch" : "dp";
    uint64_t n = by_microbatch ? batch / replicas : batch, v = by_microbatch ? sequences : replicas;
    uint64_t low = near_divisor(n, v, false), high = near_divisor(n, v, true),
             whole = (batch + group / 2) / group * group;
    char other[64] = "";
    if (high != low)
        snprintf(other, sizeof other, " or %s = %" PRIu64, name, high);
    diag_help(c->diag, "%s = %" PRIu64 "%s would, or a batch of %" PRIu64 " sequences", name, low, other,
              whole ? whole : group);
}

static void check_wishes(struct check *c, const struct wishes *w)
{
    const struct job *j = c->job;
    const struct layer *l = NULL;
    const struct wish *tp = &w->degree[DEG_TP], *pp = &w->degree[DEG_PP], *ep = &w->degree[DEG_EP],
                      *vpp = &w->degree[DEG_VPP];
    const struct wish *dp = &w->degree[DEG_DP], *mb = &w->degree[DEG_MICROBATCH], *cp = &w->degree[DEG_CP],
                      *shard = &w->degree[DEG_SHARD];
    if (tp->relation == REL_EQ && !divides_all(&j->model, tp->value, false, &l)) {
        diag_error(c->diag, tp->span, "relation", "tp = %" PRIu64 " does not divide heads = %u", tp->value,
                   l->attn.heads);
        diag_note(c->diag, l->attn.span, "the attention");
    }
    if (ep->relation == REL_EQ && !divides_all(&j->model, ep->value, true, &l)) {
        diag_error(c->diag, ep->span, "relation", "ep = %" PRIu64 " does not divide experts = %u", ep->value,
                   l->moe.experts);
        diag_note(c->diag, l->moe.span, "the experts");
    }
    uint64_t stages = (pp->relation == REL_EQ ? pp->value : 1) * (vpp->relation == REL_EQ ? vpp->value : 1);
    if (j->model.nlayers && stages > (uint64_t)j->model.nlayers + 2)
        diag_error(c->diag, pp->relation == REL_EQ ? pp->span : vpp->span, "relation",
                   "%" PRIu64 " pipeline chunks for %u layers", stages, j->model.nlayers);
    check_batch(c, dp, mb);
    uint64_t ranks = dp->value * cp->value;
    bool pinned = shard->relation == REL_EQ && dp->relation == REL_EQ && cp->relation == REL_EQ;
    if (pinned && ranks % shard->value)
        diag_error(c->diag, shard->span, "relation", "shard = %" PRIu64 " does not divide dp * cp = %" PRIu64,
                   shard->value, ranks);
}

static void sema_plan_entry(struct check *c, const struct entry *e, struct wishes *w, struct keep_wish *keeps)
{
    const char *word = e->row->name;
    struct value v;
    for (int d = 0; d < NDEGREES; d++)
        if (!strcmp(word, degree_names[d]))
            sema_degree(c, e, &w->degree[d]);
    if (!strcmp(word, "schedule")) {
        sema_schedule(c, e, w);
    } else if (!strcmp(word, "recompute")) {
        sema_recompute(c, e, w);
    } else if (!strcmp(word, "offload")) {
        sema_offload(c, e, w);
    } else if (!strcmp(word, "overlap") || !strcmp(word, "never")) {
        sema_overlap(c, e, w, *word == 'n');
    } else if (!strcmp(word, "order")) {
        sema_order(c, e, w);
    } else if (!strcmp(word, "keep")) {
        if (check_is_free(e->stmt))
            sema_keep_free(c, e, w);
        else
            w->nkeeps += sema_keep(c, e, &keeps[w->nkeeps]);
    } else if (!strcmp(word, "leave")) {
        sema_leave(c, e, w);
    } else if (!strcmp(word, "memory")) {
        w->memory_span = e->stmt->span;
        if (sema_limit(c, e, UNITS_BYTES, &v))
            w->memory = v.number.whole ? v.number.integer : (uint64_t)v.number.real;
    } else if (!strcmp(word, "step_time")) {
        if (sema_limit(c, e, UNITS_SECONDS, &v))
            w->step_time_s = v.number.real;
        w->step_time_span = e->stmt->span;
    } else if (!strcmp(word, "finish") && sema_limit(c, e, UNITS_SECONDS, &v)) {
        w->finish_s = v.number.real;
        w->finish_span = e->stmt->span;
        if (c->job->train.total == 0)
            diag_error(c->diag, e->stmt->span, "missing", "'finish' needs 'total N tokens' in train");
    }
}

void sema_plan(struct check *c, const struct stmt *s, const struct env *env)
{
    struct wishes *w = &c->job->wishes;
    struct span owner = s ? s->word_span : (struct span){0};
    w->span = owner;
    if (s && s->items)
        diag_error(c->diag, s->items->span, "form", "plan has no name");
    struct block b = check_block(c, SCOPE_plan, s ? s->block : NULL, env, owner);
    struct keep_wish *keeps = ARENA_ARRAY(c->arena, struct keep_wish, b.n ? b.n : 1);
    struct profile_adjust *adjusts = ARENA_ARRAY(c->arena, struct profile_adjust, b.n ? b.n : 1);
    w->keeps = keeps;
    w->adjusts = adjusts;
    w->recompute = RECOMPUTE_AUTO;
    for (size_t i = 0; i < b.n; i++)
        if (!strcmp(b.entries[i].row->name, "adjust"))
            w->nadjusts += sema_adjust(c, &b.entries[i], w, &adjusts[w->nadjusts]);
        else
            sema_plan_entry(c, &b.entries[i], w, keeps);
    const struct bound *sp = bound_find(&b.words, "sequence_parallel");
    w->sequence_parallel = bound_is(&b.words, "sequence_parallel", "yes")  ? TRI_YES
                           : bound_is(&b.words, "sequence_parallel", "no") ? TRI_NO
                                                                           : TRI_AUTO;
    w->sequence_parallel_span = sp->value.span;
    w->post_validation = bound_is(&b.words, "post_validation", "yes");
    w->post_validation_span = bound_find(&b.words, "post_validation")->value.span;
    static const char *const contexts[] = {[CONTEXT_AUTO] = "auto",
                                           [CONTEXT_RING] = "ring",
                                           [CONTEXT_ALL_GATHER] = "all_gather",
                                           [CONTEXT_ALL_TO_ALL] = "all_to_all"};
    while (!bound_is(&b.words, "context", contexts[w->context]))
        w->context++;
    w->context_span = bound_find(&b.words, "context")->value.span;
    if (bound_set(&b.words, "use")) {
        w->use = bound_name(&b.words, "use");
        w->use_span = bound_find(&b.words, "use")->value.span;
    }
    w->objective = bound_is(&b.words, "minimize", "gpu_time") ? MINIMIZE_GPU_TIME : MINIMIZE_STEP_TIME;
    sema_profile(c, &b.words, w);
    sema_layout(c, &b.words, w);
    if (!b.words.bad)
        check_wishes(c, w);
}
