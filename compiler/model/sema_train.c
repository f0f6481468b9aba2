/* The `train` block: batch, precision, optimizer, schedule. */

#include "compiler/model/check.h"

#include "compiler/support/strbuf.h"

#include <inttypes.h>
#include <string.h>

#define BATCH_MAX (UINT64_C(1) << 40) /* sequences */

/* N WORD, where WORD is one of two; *second tells which; the value's place is kept for messages */
static bool amount(struct check *c, const struct entry *e, const char *one, const char *two, struct value *v,
                   bool *second)
{
    const struct item *item = e->stmt->items;
    bool word = item && (item->expr->kind == EXPR_NAME || item->expr->kind == EXPR_CALL);
    if (word && vocab_refused(item->expr->text)) { /* batch ramp(...) */
        check_unknown(c, item->expr->span, "word", item->expr->text, NULL, 0);
        return false;
    }
    const struct item *unit = item && item->relop == RELOP_NONE ? item->next : NULL;
    bool named = unit && !unit->next && unit->relop == RELOP_NONE && unit->expr->kind == EXPR_NAME;
    *second = named && two && !strcmp(unit->expr->text, two);
    if (!named || (!*second && strcmp(unit->expr->text, one) != 0)) {
        struct span at = item ? span_join(item->span, unit ? unit->span : item->span) : e->stmt->word_span;
        diag_error(c->diag, at, "form", "write '%s N %s'%s%s%s%s%s", e->row->name, one, two ? " or '" : "",
                   two ? e->row->name : "", two ? " N " : "", two ? two : "", two ? "'" : "");
        return false;
    }
    *v = check_eval(c, e->env, item->expr);
    return v->kind != VALUE_BAD;
}

/* What to write instead of a batch of n tokens: the binary multiple of what was written if that is whole,
 * else the next whole number above; and the one below. */
static void batch_help(struct check *c, uint64_t n, uint64_t sequence, const struct value *v)
{
    uint64_t below = n / sequence * sequence, above = below + sequence;
    size_t digits = v->text ? strlen(v->text) : 0;
    if (digits && strchr("KMGT", v->text[digits - 1])) {
        uint64_t binary;
        struct units_error why;
        char *text = arena_printf(c->arena, "%si", v->text);
        if (units_count(text, strlen(text), &binary, &why) && binary % sequence == 0) {
            if (below)
                diag_caret(c->diag, "help: write %s tokens (%" PRIu64 " sequences) or %s tokens (%" PRIu64 ")", text,
                           binary / sequence, units_show_literal(below).s, below / sequence);
            else
                diag_caret(c->diag, "help: write %s tokens (%" PRIu64 " sequences)", text, binary / sequence);
            return;
        }
    }
    if (below)
        diag_caret(c->diag, "help: write %s tokens (%" PRIu64 " sequences) or %s tokens (%" PRIu64 ")",
                   units_show_literal(above).s, above / sequence, units_show_literal(below).s, below / sequence);
    else
        diag_caret(c->diag, "help: write %s tokens (1 sequence) or more", units_show_literal(above).s);
}

static void sema_batch(struct check *c, const struct entry *e, struct train *t)
{
    struct value v;
    bool sequences;
    uint64_t n;
    if (!amount(c, e, "tokens", "sequences", &v, &sequences))
        return;
    t->batch_span = v.span;
    if (!check_count(c, &v, "batch", 1, sequences ? BATCH_MAX : UINT64_C(1) << 52, &n))
        return;
    if (sequences) {
        t->batch = n;
    } else if (t->sequence && n % t->sequence) {
        diag_error(c->diag, v.span, "batch", "batch of %s tokens is not a whole number of %" PRIu64 "-token sequences",
                   units_show_commas(n).s, t->sequence);
        batch_help(c, n, t->sequence, &v);
    } else if (t->sequence) {
        t->batch = n / t->sequence;
    }
}

static void sema_total(struct check *c, const struct entry *e, struct train *t)
{
    struct value v;
    bool second;
    uint64_t n;
    if (!amount(c, e, "tokens", NULL, &v, &second) || !check_count(c, &v, "total", 1, UINT64_C(1) << 60, &n))
        return;
    t->total = (double)n;
    if (t->batch && t->sequence && n / t->sequence < t->batch)
        diag_warning(c->diag, v.span, "total", "the run of %s tokens is shorter than one step", units_show_commas(n).s);
}

static enum dtype_name dtype(const struct binding *b, const char *name)
{
    static const char *const names[] = {[DT_FP32] = "fp32", [DT_BF16] = "bf16", [DT_FP16] = "fp16"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (bound_is(b, name, names[i]))
            return (enum dtype_name)i;
    return DT_FP32;
}

static void sema_precision(struct check *c, const struct value *v, struct train *t)
{
    static const char *const recipes[] = {
        [FP8_TENSOR] = "tensor", [FP8_ROW] = "row", [FP8_BLOCK] = "block", [FP8_MX] = "mx"};
    t->precision = !strcmp(v->text, "fp32")   ? DT_FP32
                   : !strcmp(v->text, "bf16") ? DT_BF16
                   : !strcmp(v->text, "fp16") ? DT_FP16
                                              : DT_FP8;
    t->precision_span = v->span;
    t->master = t->grads = t->reduce = t->moments = DT_FP32;
    if (t->precision == DT_FP32)
        return;
    struct binding b = check_bind(c, (enum scope)vocab_scope(v->text), v);
    t->master = dtype(&b, "master");
    t->grads = dtype(&b, "grads");
    t->reduce = bound_is(&b, "reduce", "grads") ? t->grads : dtype(&b, "reduce");
    t->moments = dtype(&b, "moments");
    if (t->precision == DT_FP16) {
        t->loss_scale = bound_real(&b, "scale");
        t->scale_window = bound_count(&b, "window");
        t->scale_hysteresis = bound_count(&b, "hysteresis");
    }
    t->fp8_kept = t->precision == DT_FP8 && bound_is(&b, "activations", "fp8");
    t->fp8_sent = t->precision == DT_FP8 && bound_is(&b, "dispatch", "fp8");
    for (size_t i = 0; t->precision == DT_FP8 && i < ARRAY_LEN(recipes); i++)
        if (bound_is(&b, "recipe", recipes[i]))
            t->recipe = (enum fp8_recipe)i;
}

static void sema_optimizer(struct check *c, const struct value *v, struct train *t)
{
    t->optimizer_span = v->span;
    t->optimizer = !strcmp(v->text, "sgd") ? OPT_SGD : OPT_ADAMW;
    struct binding b = check_bind(c, (enum scope)vocab_scope(v->text), v);
    t->lr = bound_real(&b, "lr");
    if (t->optimizer == OPT_SGD) {
        t->momentum = bound_real(&b, "momentum");
        return;
    }
    t->beta1 = bound_real(&b, "beta1");
    t->beta2 = bound_real(&b, "beta2");
    t->eps = bound_real(&b, "eps");
    t->weight_decay = bound_real(&b, "weight_decay");
}

static void sema_lr_schedule(struct check *c, const struct value *v, struct train *t)
{
    static const struct {
        const char *name;
        enum lr_kind kind;
        enum scope scope;
    } kinds[] = {{"constant", LR_CONSTANT, SCOPE_constant},
                 {"linear", LR_LINEAR, SCOPE_linear_decay},
                 {"cosine", LR_COSINE, SCOPE_cosine},
                 {"wsd", LR_WSD, SCOPE_wsd}};
    size_t k = 0;
    while (strcmp(kinds[k].name, v->text) != 0)
        k++;
    struct binding b = check_bind(c, kinds[k].scope, v);
    t->lr_kind = kinds[k].kind;
    t->lr_warmup = bound_count(&b, "warmup");
    if (t->lr_kind == LR_CONSTANT)
        return;
    t->lr_decay = bound_count(&b, "decay");
    t->lr_min = bound_real(&b, "min");
    if (t->lr_kind == LR_WSD)
        t->lr_stable = bound_count(&b, "stable");
    if (b.bad)
        return;
    if (t->lr_kind != LR_WSD && t->lr_decay && t->lr_decay <= t->lr_warmup)
        diag_error(c->diag, bound_span(&b, "decay", v->span), "relation",
                   "decay = %" PRIu64 " ends before warmup = %" PRIu64 " does", t->lr_decay, t->lr_warmup);
    if (t->lr_min > t->lr)
        diag_error(c->diag, bound_span(&b, "min", v->span), "relation", "min = %s is above the peak lr = %s",
                   units_show_real(t->lr_min).s, units_show_real(t->lr).s);
}

static struct value standard_value(const struct binding *b, const char *name)
{
    const struct bound *at = bound_find(b, name);
    return bound_set(b, name) ? at->value : (struct value){.kind = VALUE_NAME, .text = at->row->standard};
}

static void sema_sequence(struct check *c, const struct binding *b, struct train *t)
{
    const struct model *m = &c->job->model;
    t->sequence = bound_set(b, "sequence") ? bound_count(b, "sequence") : 0;
    t->sequence_span = bound_span(b, "sequence", t->span);
    const char *text = bound_set(b, "sequence") ? bound_find(b, "sequence")->value.text : NULL;
    size_t n = text ? strlen(text) : 0;
    if (n && strchr("KM", text[n - 1])) {
        uint64_t binary = 0;
        struct units_error why;
        char *meant = arena_printf(c->arena, "%si", text);
        units_count(meant, n + 1, &binary, &why);
        diag_warning(c->diag, t->sequence_span, "decimal", "sequence %s is %s tokens", text,
                     units_show_commas(t->sequence).s);
        diag_caret(c->diag, "did you mean %s (%s)?", meant, units_show_commas(binary).s);
    }
    if (m->positions && t->sequence > m->positions) {
        diag_error(c->diag, t->sequence_span, "relation",
                   "sequence = %" PRIu64 " is longer than the %" PRIu64 " learned positions", t->sequence,
                   m->positions);
        diag_note(c->diag, m->positions_span, "'embed positions(%" PRIu64 ")'", m->positions);
    }
}

void sema_train(struct check *c, const struct stmt *s, const struct env *env)
{
    struct train *t = &c->job->train;
    t->span = s->word_span;
    if (s->items)
        diag_error(c->diag, s->items->span, "form", "train has no name");
    struct block b = check_block(c, SCOPE_train, s->block, env, s->word_span);
    sema_sequence(c, &b.words, t);
    for (size_t i = 0; i < b.n; i++)
        if (!strcmp(b.entries[i].row->name, "batch"))
            sema_batch(c, &b.entries[i], t);
    for (size_t i = 0; i < b.n; i++)
        if (!strcmp(b.entries[i].row->name, "total"))
            sema_total(c, &b.entries[i], t);
    struct value v = standard_value(&b.words, "precision");
    sema_precision(c, &v, t);
    v = standard_value(&b.words, "optimizer");
    sema_optimizer(c, &v, t);
    v = standard_value(&b.words, "lr_schedule");
    sema_lr_schedule(c, &v, t);
    v = standard_value(&b.words, "init");
    struct binding init = check_bind(c, SCOPE_normal, &v);
    t->init_std = bound_real(&init, "std");
    t->init_residual = bound_yes(&init, "residual");
    t->clip = bound_real(&b.words, "clip");
    t->imbalance = bound_real(&b.words, "imbalance");
    t->expert_room = bound_real(&b.words, "expert_room");
    t->seed = bound_count(&b.words, "seed");
}
