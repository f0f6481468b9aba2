/* Property 7: rules of the instructions that compute, but for products and the optimizer.
 *
 * Most rules follow from the table: operands whose shapes carry the same name must hold the same rows or
 * columns, the recipe is opcode, attributes and input nodes, outputs take rows and columns from the names.
 * What the table does not say is in the list of rules below: over which name an instruction sums, which names must be
 * whole, which attribute says where a name starts. */

#include "compiler/verify/conserve.h"

/* what the table does not say of a row */
struct rule {
    const char *over;    /* contributions are summed (or maximised) over this name's elements */
    const char *whole;   /* must hold all its elements */
    const char *starts;  /* the BIND attribute `start` must be where this name's elements start */
    const char *rotates; /* the same, modulo the sequence */
    bool attention;      /* of heads */
};

struct binding {
    bool known[16];
    struct extent at[16];
    const struct value *from[16]; /* whose rows or columns they were, for messages */
    uint32_t origin, origin_role;
    const struct routed *routed; /* of the inputs' rows, which must be equal */
    struct value *input;         /* by operand; of those that are read */
};

static uint8_t find_name(const struct shape *s, const char *name)
{
    for (uint8_t i = 1; name && i < s->n; i++)
        if (!strcmp(s->name[i], name))
            return i;
    return 0;
}

static bool bind(struct machine *m, uint32_t i, size_t k, uint8_t name, uint32_t number, const struct extent *e,
                 const struct value *v, struct binding *b)
{
    const struct isa_info *info = isa_info(m->program->insns[i].op);
    struct extent fixed = extent_new(0, number);
    const struct extent *have = name ? &b->at[name] : &fixed;
    if (name && !b->known[name]) {
        b->known[name] = true;
        b->at[name] = *e;
        b->from[name] = v;
        return true;
    }
    if (extent_same(have, e))
        return true;
    return conserve_fail_inputs(m, i, "its operand %s holds elements %s, the others %s%s%s", info->operand[k].name,
                                extent_text(m->c->arena, e), extent_text(m->c->arena, have), conserve_origin(m, v),
                                name ? conserve_origin(m, b->from[name]) : "");
}

/* inputs into the recipe, their rows and columns into the binding */
static bool read_inputs(struct machine *m, uint32_t i, struct recipe *r, struct binding *b)
{
    const struct isa_info *info = recipe_info(r);
    const struct shape *s = &m->c->shapes[r->op];
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(m->program, i, k);
        struct value *v = &b->input[k];
        if (o->buffer == NONE || info->operand[k].mark != MARK_READ)
            continue;
        if (!conserve_read(m, i, k, v))
            return false;
        r->input[k] = v->node;
        if (v->routed && b->routed && !value_routed_same(v->routed, b->routed))
            return conserve_fail_inputs(m, i, "its operand %s holds rows that other tokens sent",
                                        info->operand[k].name);
        b->routed = v->routed ? v->routed : b->routed;
        if (!bind(m, i, k, s->row[k], o->rows, &v->row, v, b) || !bind(m, i, k, s->col[k], o->cols, &v->col, v, b))
            return false;
        if (!b->origin) {
            b->origin = v->origin;
            b->origin_role = v->origin_role;
        }
    }
    return true;
}

static size_t operand_index(const struct isa_info *info, const char *name)
{
    size_t k = 0;
    while (k < info->noperands && strcmp(info->operand[k].name, name) != 0)
        k++;
    return k;
}

static size_t attr_index(const struct isa_info *info, const char *name)
{
    size_t k = 0;
    while (k < info->nattrs && strcmp(info->attr[k].name, name) != 0)
        k++;
    return k;
}

/* output-only names: the size is the operand's, the place what the attribute says, or the beginning */
static bool bind_outputs(struct machine *m, uint32_t i, const struct rule *rule, struct binding *b)
{
    enum op op = m->program->insns[i].op;
    const struct isa_info *info = isa_info(op);
    const struct shape *s = &m->c->shapes[op];
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(m->program, i, k);
        for (int col = 0; col < 2 && o->buffer != NONE; col++) {
            uint8_t name = col ? s->col[k] : s->row[k];
            if (!name || b->known[name])
                continue;
            b->known[name] = true;
            b->at[name] = extent_new(0, col ? o->cols : o->rows);
            if (name == find_name(s, rule->starts) &&
                !conserve_bind(m, i, attr_index(info, "start"), b->at[name].len, &b->at[name]))
                return false;
        }
    }
    return true;
}

/* does it start at a multiple on every rank?  That it is several times as long the loader sees to. */
static bool multiple(const struct extent *e, int64_t n)
{
    bool fine = n > 0 && e->lo % n == 0;
    for (int a = 0; a < NDIGITS; a++)
        fine = fine && e->step[a] % n == 0;
    return fine;
}

static bool check_start(struct machine *m, uint32_t i, const struct rule *rule, const struct binding *b)
{
    const struct isa_info *info = isa_info(m->program->insns[i].op);
    const struct shape *s = &m->c->shapes[m->program->insns[i].op];
    const char *name = rule->starts ? rule->starts : rule->rotates;
    struct extent start, apart;
    if (!name)
        return true;
    const struct extent *e = &b->at[find_name(s, name)];
    if (!conserve_bind(m, i, attr_index(info, "start"), e->len, &start))
        return false;
    apart = start;
    apart.lo -= e->lo;
    for (int a = 0; a < NDIGITS; a++)
        apart.step[a] -= e->step[a];
    if (rule->rotates && !conserve_places(m, i, attr_index(info, "first"), attr_index(info, "shift"), e))
        return false;
    if (rule->starts ? extent_same(&start, e) : multiple(&apart, conserve_sequence(m)))
        return true;
    return conserve_fail(m, i, "it says that its elements are %s%s, but they are %s", extent_text(m->c->arena, &start),
                         rule->starts ? "" : " (modulo the sequence)", extent_text(m->c->arena, e));
}

/* Whole heads; query heads with the key heads they attend to; whole sequences. */
static bool check_attention(struct machine *m, uint32_t i, const struct recipe *r, struct binding *b)
{
    const struct shape *s = &m->c->shapes[r->op];
    const struct nodes *g = m->c->nodes;
    int64_t head = (int64_t)r->attr[ATTR(ATTENTION, head)], sequence = (int64_t)r->attr[ATTR(ATTENTION, sequence)];
    const struct extent *q = &b->at[find_name(s, "heads*head")], *k = &b->at[find_name(s, "kv*head")];
    const struct extent *v = &b->at[find_name(s, "kv*u")];
    bool back = r->op == OP_ATTENTION_I;
    /* with cp rows are numbered run by run: those of a sequence's length need not be one's, those within a run are */
    int64_t runs = 2 * (int64_t)m->c->plan->decision.cp, all = (int64_t)m->c->plan->job->train.sequence;
    if (m->c->plan->decision.cp > 1 && all / runs % sequence)
        return conserve_fail(m, i, "its rows are parts of sequences that %u ranks share", m->c->plan->decision.cp);
    uint32_t nq = r->input[back ? OPND(ATTENTION_I, q) : OPND(ATTENTION, q)],
             nk = r->input[back ? OPND(ATTENTION_I, k) : OPND(ATTENTION, k)];
    int64_t group = g->at[nk].cols ? g->at[nq].cols / g->at[nk].cols : 1;
    struct extent grouped = *k, heads = *q;
    grouped.lo *= group;
    grouped.len *= group;
    heads.lo /= head;
    heads.len /= head;
    for (int a = 0; a < NDIGITS; a++) {
        grouped.step[a] *= group;
        heads.step[a] /= head;
    }
    if (!multiple(k, head) || !extent_same(&grouped, q))
        return conserve_fail(m, i, "its query columns %s do not belong to its key columns %s",
                             extent_text(m->c->arena, q), extent_text(m->c->arena, k));
    if (!multiple(&b->at[find_name(s, "t")], sequence))
        return conserve_fail(m, i, "its rows %s are no whole sequences of %lld tokens",
                             extent_text(m->c->arena, &b->at[find_name(s, "t")]), (long long)sequence);
    int64_t u = k->len ? v->len * head / k->len : 0;
    struct extent values = extent_scaled(k, u, head), out = extent_scaled(&heads, u, 1);
    if (!extent_same(&values, v))
        return conserve_fail(m, i, "its value columns %s do not belong to its key columns %s",
                             extent_text(m->c->arena, v), extent_text(m->c->arena, k));
    uint8_t o = find_name(s, "heads*u");
    if (b->known[o] && !extent_same(&b->at[o], &out))
        return conserve_fail(m, i, "its output has columns %s, its queries %s", extent_text(m->c->arena, &b->at[o]),
                             extent_text(m->c->arena, q));
    b->known[o] = true;
    b->at[o] = out;
    uint8_t name = find_name(s, "heads");
    if (b->known[name] && !extent_same(&b->at[name], &heads))
        return conserve_fail(m, i, "its log-sum-exp is of heads %s, its queries of heads %s",
                             extent_text(m->c->arena, &b->at[name]), extent_text(m->c->arena, &heads));
    b->known[name] = true;
    b->at[name] = heads;
    return conserve_biases(m, i, ATTR(ATTENTION, alibi), ATTR(ATTENTION, first_head), &heads);
}

static bool check_special(struct machine *m, uint32_t i, const struct rule *rule, const struct recipe *r,
                          struct binding *b)
{
    const struct shape *s = &m->c->shapes[r->op];
    if (rule->attention && !check_attention(m, i, r, b))
        return false;
    if (r->op == OP_ROPE && !multiple(&b->at[find_name(s, "a")], (int64_t)r->attr[ATTR(ROPE, head)]))
        return conserve_fail(m, i, "its columns are no whole heads");
    if (r->op == OP_CONCAT || r->op == OP_CONCAT_I) {
        bool forward = r->op == OP_CONCAT;
        const struct extent *in = &b->at[find_name(s, forward ? "h" : "w")];
        int64_t size = m->c->nodes->at[r->input[forward ? OPND(CONCAT, a) : OPND(CONCAT_I, dy)]].cols;
        int64_t half = prove_operand(m->program, i, forward ? OPND(CONCAT, a) : OPND(CONCAT_I, da))->cols,
                both = prove_operand(m->program, i, forward ? OPND(CONCAT, y) : OPND(CONCAT_I, dy))->cols;
        return (extent_whole(in, size) && both == 2 * half) ||
               conserve_fail(m, i, "it needs all %lld columns, but has %s", (long long)size,
                             extent_text(m->c->arena, in));
    }
    uint8_t whole = find_name(s, rule->whole);
    if (!whole)
        return true;
    int64_t size = r->op == OP_POSITION
                       ? (int64_t)m->c->plan->job->model.positions
                       : m->c->nodes->at[r->input[operand_index(recipe_info(r), "x")]].cols; /* a norm's */
    return extent_whole(&b->at[whole], size) || conserve_fail(m, i, "it needs all %lld elements, but has %s",
                                                              (long long)size, extent_text(m->c->arena, &b->at[whole]));
}

static bool write_outputs(struct machine *m, uint32_t i, const struct rule *rule, struct recipe *r,
                          const struct binding *b)
{
    const struct isa_info *info = recipe_info(r);
    const struct shape *s = &m->c->shapes[r->op];
    uint8_t over = find_name(s, rule->over);
    uint32_t first = 0;
    bool never = false;
    if (r->op == OP_XENT_LOSS && !conserve_count(m, i, ATTR(XENT_LOSS, count), &first, &never))
        return false;
    for (uint32_t k = 0; k < info->noperands; k++) {
        const struct operand *o = prove_operand(m->program, i, k);
        if (o->buffer == NONE || info->operand[k].mark == MARK_READ)
            continue;
        r->output = (uint16_t)k;
        uint32_t node = conserve_find(m, i, r);
        if (node == NONE)
            return false;
        struct value v = conserve_value(m->c, node, over ? &b->at[over] : NULL,
                                        s->row[k] ? b->at[s->row[k]] : extent_new(0, o->rows),
                                        s->col[k] ? b->at[s->col[k]] : extent_new(0, o->cols));
        v.origin = b->origin;
        v.origin_role = b->origin_role;
        v.routed = b->routed;
        if (never)
            v = (struct value){.kind = VALUE_ZERO};
        if (first && !never) {
            struct block block = {.extent = b->at[over], .count = 1, .first = first};
            struct term *term = ARENA_NEW(m->c->scratch, struct term);
            *term = (struct term){node, sets_one(m->c->nodes->sets, &block)};
            v.node = NODE_ZERO;
            v.nterms = 1;
            v.terms = term;
        }
        if (!conserve_emit_one(m, i, k, &v))
            return false;
    }
    return true;
}

static bool by_table(struct machine *m, uint32_t i, const struct rule *rule)
{
    struct recipe r = {.op = m->program->insns[i].op};
    struct value input[ISA_MAX_OPERANDS];
    struct binding b = {.input = input};
    conserve_attrs(m, i, &r);
    if (rule->rotates) /* the model's sequence, not a rank's part of it */
        r.attr[attr_index(isa_info(m->program->insns[i].op), "sequence")] *= m->c->plan->decision.cp;
    if (rule->attention) /* heads of this rank: compared with its columns instead */
        r.attr[ATTR(ATTENTION, heads)] = r.attr[ATTR(ATTENTION, kv)] = 0;
    return read_inputs(m, i, &r, &b) && check_special(m, i, rule, &r, &b) && bind_outputs(m, i, rule, &b) &&
           check_start(m, i, rule, &b) && write_outputs(m, i, rule, &r, &b);
}

/* rows of which the table says all, and those of which it does not */
#define PLAIN_RULE(name) RULE(name, .over = NULL)
#define RULE(name, ...)                                                                                                \
    bool rule_##name(struct machine *m, uint32_t i)                                                                    \
    {                                                                                                                  \
        return by_table(m, i, &(struct rule){__VA_ARGS__});                                                            \
    }
RULE(EMBED, .over = "v", .starts = "v")
RULE(EMBED_W, .over = "t", .starts = "v")
RULE(POSITION, .whole = "s", .rotates = "t")
RULE(POSITION_W, .over = "t", .rotates = "t")
RULE(RMSNORM, .whole = "h")
RULE(RMSNORM_I, .whole = "h")
RULE(RMSNORM_W, .over = "t")
RULE(LAYERNORM, .whole = "h")
RULE(LAYERNORM_I, .whole = "h")
RULE(LAYERNORM_W, .over = "t")
RULE(ROPE, .rotates = "t")
RULE(XENT_MAX, .over = "v", .starts = "v")
RULE(XENT_SUM, .over = "v", .starts = "v")
RULE(XENT_LOSS, .over = "t")
RULE(XENT_I, .starts = "v")
RULE(ATTENTION, .attention = true)
RULE(ATTENTION_I, .attention = true)
PLAIN_RULE(GELU)
PLAIN_RULE(GELU_I)
PLAIN_RULE(RELU)
PLAIN_RULE(RELU_I)
PLAIN_RULE(SWIGLU)
PLAIN_RULE(SWIGLU_I)
PLAIN_RULE(GEGLU)
PLAIN_RULE(GEGLU_I)
PLAIN_RULE(SCALE)
PLAIN_RULE(SOFTCAP)
PLAIN_RULE(SOFTCAP_I)
PLAIN_RULE(CONCAT)
PLAIN_RULE(CONCAT_I)

/* on every rank within the batch, the last one too: also what keeps products of rows within 64 bits */
static bool check_samples(struct machine *m, uint32_t i, const struct extent *sample)
{
    int64_t batch = (int64_t)m->c->plan->job->train.batch, last = sample->lo + sample->len - 1;
    for (int a = 0; a < NDIGITS; a++) {
        if (sample->step[a] < 0 || sample->step[a] > batch || last >= batch)
            return conserve_fail(m, i, "it reads samples %s of a batch of %lld", extent_text(m->c->arena, sample),
                                 (long long)batch);
        last += sample->step[a] * (m->c->plan->mesh.size[a] - 1);
    }
    return last < batch || conserve_fail(m, i, "it reads samples %s of a batch of %lld",
                                         extent_text(m->c->arena, sample), (long long)batch);
}

/* of both instructions: their operands and first attributes are the same */
static bool compute_tokens(struct machine *m, uint32_t i)
{
    const struct reference *ref = m->c->reference;
    int64_t sequence = prove_attr(m->program, i, ATTR(TOKENS, sequence))->u.i;
    struct value step;
    struct extent sample;
    if (!conserve_read(m, i, OPND(TOKENS, step), &step) || !conserve_bind(m, i, ATTR(TOKENS, sample), 1, &sample))
        return false;
    if (step.node != ref->block)
        return conserve_fail(m, i, "its step block is %s", nodes_name(m->c->nodes, step.node));
    if (sequence != conserve_sequence(m))
        return conserve_fail(m, i, "it reads sequences of %lld tokens, a rank of the job's has %lld",
                             (long long)sequence, (long long)conserve_sequence(m));
    for (size_t k = OPND(TOKENS, tokens); k <= OPND(TOKENS, targets); k++) /* equally many rows */
        if (prove_operand(m->program, i, k)->buffer != NONE)
            sample.len = (prove_operand(m->program, i, k)->rows + sequence - 1) / sequence;
    if (!check_samples(m, i, &sample))
        return false;
    int64_t whole = (int64_t)m->c->plan->job->train.sequence, ahead = 0;
    if (m->program->insns[i].op == OP_TOKENS_AHEAD) {
        ahead = prove_attr(m->program, i, ATTR(TOKENS_AHEAD, ahead))->u.i;
        int64_t places = prove_attr(m->program, i, ATTR(TOKENS_AHEAD, whole))->u.i;
        if (ahead < 1 || ahead > m->c->plan->job->model.predict || places != whole)
            return conserve_fail(
                m, i, "it reads ids %lld places later of samples of %lld, the model has %u prediction modules",
                (long long)ahead, (long long)places, m->c->plan->job->model.predict);
    }
    for (size_t k = OPND(TOKENS, tokens); k <= OPND(TOKENS, targets); k++) {
        const struct operand *o = prove_operand(m->program, i, k);
        if (o->buffer == NONE)
            continue;
        struct extent row = extent_new(sample.lo * whole, o->rows);
        for (int a = 0; a < NDIGITS; a++)
            row.step[a] = sample.step[a] * whole;
        conserve_own_rows(m, &row);
        if (!conserve_places(m, i, ATTR(TOKENS, first), ATTR(TOKENS, shift), &row))
            return false;
        uint32_t next = k == OPND(TOKENS, tokens) ? ref->tokens : ref->targets;
        struct value v = conserve_value(m->c, ahead ? ref->later[k != OPND(TOKENS, tokens)][ahead] : next, NULL, row,
                                        extent_new(0, 1));
        v.origin = i + 1;
        v.origin_role = m->role;
        if (!conserve_emit_one(m, i, k, &v))
            return false;
    }
    return true;
}

bool rule_TOKENS(struct machine *m, uint32_t i)
{
    return compute_tokens(m, i);
}

bool rule_TOKENS_AHEAD(struct machine *m, uint32_t i)
{
    return compute_tokens(m, i);
}

bool rule_FILL(struct machine *m, uint32_t i)
{
    double value = prove_attr(m->program, i, ATTR(FILL, value))->u.f;
    struct value v = {.kind = VALUE_ZERO};
    if (value != 0)
        return conserve_fail(m, i, "the model's step fills nothing with %g", value);
    return conserve_emit_one(m, i, OPND(FILL, y), &v);
}

bool rule_COPY(struct machine *m, uint32_t i)
{
    struct parts *p = &m->c->parts[1];
    const struct operand *x = prove_operand(m->program, i, OPND(COPY, x)),
                         *y = prove_operand(m->program, i, OPND(COPY, y));
    const struct buffer *from = &m->program->buffers[x->buffer], *to = &m->program->buffers[y->buffer];
    if ((from->host || to->host) && x->dtype != y->dtype)
        return conserve_fail(m, i, "a copy between device and host changes the format");
    if ((from->host && from->kind != BUFFER_STEP) || (to->host && to->kind != BUFFER_STEP))
        return conserve_copy_flat(m, i);
    bool done = false;
    if (x->dtype != y->dtype && (!conserve_convert(m, i, &done) || done))
        return !m->c->failed;
    return conserve_read_parts(m, i, OPND(COPY, x), p) && conserve_emit(m, i, OPND(COPY, y), p);
}

/* y = a + b + bias; a bias is a row that all rows share */
bool rule_ADD(struct machine *m, uint32_t i)
{
    struct value sum, v;
    bool shards;
    if (!conserve_add_shards(m, i, &shards) || shards)
        return shards && !m->c->failed;
    if (prove_operand(m->program, i, OPND(ADD, b))->buffer == NONE &&
        prove_operand(m->program, i, OPND(ADD, bias))->buffer == NONE) { /* alone: whatever it is, side by side */
        struct parts *p = &m->c->parts[1];
        return conserve_read_parts(m, i, OPND(ADD, a), p) && conserve_emit(m, i, OPND(ADD, y), p);
    }
    if (!conserve_read(m, i, OPND(ADD, a), &sum))
        return false;
    if (prove_operand(m->program, i, OPND(ADD, b))->buffer != NONE) {
        if (!conserve_read(m, i, OPND(ADD, b), &v))
            return false;
        struct value x = sum;
        const char *why = value_add(m->c->scratch, m->c->nodes, &x, &v, &sum);
        if (why)
            return conserve_fail_inputs(m, i, "%s%s%s", why, conserve_origin(m, &x), conserve_origin(m, &v));
    }
    if (prove_operand(m->program, i, OPND(ADD, bias))->buffer != NONE) {
        if (!conserve_read(m, i, OPND(ADD, bias), &v))
            return false;
        if (!extent_same(&v.col, &sum.col))
            return conserve_fail(m, i, "its bias is of columns %s, the sum of columns %s",
                                 extent_text(m->c->arena, &v.col), extent_text(m->c->arena, &sum.col));
        sum.node = nodes_sum(m->c->nodes, sum.node, v.node);
    }
    return conserve_emit_one(m, i, OPND(ADD, y), &sum);
}
