/* What is drawn for a field, and where it is put: see fields.h.
 *
 * A value is a neighbour of the old one, an edge of its type, or what another row has there.  It goes into
 * one row, into all rows that had the old value, or into the same row of both programs of a role, or of all
 * roles: a fault that agrees with itself is what comparisons do not find.  One in eight changes is of two
 * fields of a row.  Changes are made in place and noted, so that they can be undone. */

#include "tests/compiler/random_plan.h"
#include "tests/compiler/verify/fields.h"

#include <math.h>
#include <stdlib.h>

struct draw {
    struct arena *arena;
    struct plan *plan;
    uint64_t *random;
    struct fields_change *c;
    const struct field *f;
    struct fields_rows rows; /* of the program that was drawn */
    struct program *p;       /* NULL: the plan's own tables */
    uint32_t row, insn, nth; /* of operands and attributes: whose they are, and which of its own */
    enum attr_kind kind;
    char old[232], new[232];
};

static char *row_at(const struct fields_rows *r, uint32_t i)
{
    return (char *)r->at + (size_t)i * r->stride;
}

static uint64_t number_of(const char *at, uint32_t size)
{
    uint64_t v = 0;
    memcpy(&v, at, size);
    return v;
}

/* ---- where ---- */

static bool pick_part(struct draw *d, bool operand)
{
    for (int tries = 0; tries < 64 && d->p->ninsns; tries++) {
        d->insn = random_below(d->random, d->p->ninsns);
        const struct insn *in = &d->p->insns[d->insn];
        const struct isa_info *info = isa_info(in->op);
        uint32_t n = operand ? info->noperands : info->nattrs;
        if (!n)
            continue;
        d->nth = random_below(d->random, n);
        d->row = (operand ? in->operand : in->attr) + d->nth;
        if (operand && d->p->operands[d->row].buffer == NONE && random_below(d->random, 8))
            continue;
        d->kind = operand ? ATTR_INT : info->attr[d->nth].kind;
        bool real = d->kind == ATTR_REAL;
        if (!operand && d->f->type == (real ? FIELDS_NUMBER : FIELDS_REAL) && d->f->offset == 0)
            continue;
        return true;
    }
    return false;
}

static bool pick_row(struct draw *d)
{
    d->rows = fields_rows(d->plan, d->p, d->f->table);
    if (!d->rows.n)
        return false;
    if (d->f->table == FIELDS_OPERAND || d->f->table == FIELDS_ATTR)
        return pick_part(d, d->f->table == FIELDS_OPERAND);
    d->row = random_below(d->random, d->rows.n);
    return true;
}

/* ---- what ---- */

static uint64_t draw_number(struct draw *d, uint64_t v)
{
    uint64_t other =
        number_of(row_at(&d->rows, random_below(d->random, d->rows.n)) + d->f->offset, d->f->size);
    switch (random_below(d->random, 14)) {
    case 0:
        return v + 1;
    case 1:
        return v - 1;
    case 2:
        return 0;
    case 3:
        return UINT64_MAX;
    case 4:
        return v * 2;
    case 5:
        return v / 2;
    case 6:
        return v + 256 * (1 + random_below(d->random, 8));
    case 7:
        return v - 256 * (1 + random_below(d->random, 8));
    case 8:
        return v ^ (uint64_t)1 << random_below(d->random, 8 * d->f->size);
    case 9:
    case 10:
        return random_below(d->random, 16);
    }
    return other;
}

static double draw_real(struct draw *d, double v)
{
    double other;
    memcpy(&other, row_at(&d->rows, random_below(d->random, d->rows.n)) + d->f->offset, sizeof other);
    const double values[] = {v * 2,   v / 2, 0,     1,  -v, nextafter(v, 10), nextafter(v, -10),
                             v + 0.5, other, 1e300, NAN};
    return values[random_below(d->random, ARRAY_LEN(values))];
}

static void draw_name(struct draw *d)
{
    char *name = d->new;
    size_t n = strlen(name);
    switch (random_below(d->random, 4)) {
    case 0:
        memcpy(d->new, row_at(&d->rows, random_below(d->random, d->rows.n)) + d->f->offset, d->f->size);
        return;
    case 1:
        if (n + 1 < d->f->size)
            name[n] = 'x';
        return;
    case 2:
        if (n)
            name[n - 1] = 0;
        return;
    }
    if (n)
        name[random_below(d->random, (uint32_t)n)] = (char)('a' + random_below(d->random, 26));
}

/* an array's length may shrink, or grow into room that is there; on file lengths follow from the rows */
static bool draw_count(struct draw *d, uint64_t *v)
{
    bool program = d->f->table == FIELDS_PROGRAM && d->f->offset >= offsetof(struct program, nslots) &&
                   strncmp(d->f->name, "job", 3) != 0;
    if ((!program && d->f->table != FIELDS_RANKS) || !strcmp(d->f->name, "nroles"))
        return false;
    *v = random_below(d->random, 2) && *v ? *v - 1 : random_below(d->random, (uint32_t)*v + 1);
    return true;
}

static void draw_value(struct draw *d)
{
    const struct field *f = d->f;
    uint64_t v = number_of(d->old, f->size > 8 ? 8 : f->size);
    double x;
    memcpy(d->new, d->old, f->size);
    switch (f->type) {
    case FIELDS_NUMBER:
        if (f->table == FIELDS_INSN && f->size == 1 && f->people)
            v = (uint64_t) "FBIWO\0A"[random_below(d->random, 7)];
        else if (!draw_count(d, &v))
            v = draw_number(d, v);
        memcpy(d->new, &v, f->size);
        return;
    case FIELDS_REAL:
        memcpy(&x, d->old, sizeof x);
        x = draw_real(d, x);
        memcpy(d->new, &x, sizeof x);
        return;
    case FIELDS_NAME:
        draw_name(d);
        return;
    case FIELDS_CHOICE:
        v = random_below(d->random, f->most);
        memcpy(d->new, &v, f->size);
        return;
    case FIELDS_INDEX: {
        uint32_t n = fields_rows(d->plan, d->p, f->of).n;
        v = random_below(d->random, 8) && n ? random_below(d->random, n)
            : random_below(d->random, 2)    ? UINT64_MAX
                                            : n;
        memcpy(d->new, &v, f->size);
        return;
    }
    case FIELDS_ROW:
    case FIELDS_REDECLARED:
        memcpy(d->new, row_at(&d->rows, random_below(d->random, d->rows.n)), f->size);
        return;
    }
}

/* ---- making it ---- */

static void put(struct draw *d, void *at, const void *from, uint32_t size)
{
    struct fields_undo u = {.at = at, .size = size};
    if (!memcmp(at, from, size))
        return;
    memcpy(u.old, at, size);
    vec_push(d->arena, &d->c->undo, u);
    memcpy(at, from, size);
}

/* all rows of a program that have the old value there */
static void put_alike(struct draw *d, struct program *p)
{
    struct fields_rows r = fields_rows(d->plan, p, d->f->table);
    bool part = d->f->table == FIELDS_OPERAND || d->f->table == FIELDS_ATTR;
    for (uint32_t i = 0; !part && i < r.n; i++)
        if (!memcmp(row_at(&r, i) + d->f->offset, d->old, d->f->size))
            put(d, row_at(&r, i) + d->f->offset, d->new, d->f->size);
    for (uint32_t i = 0; part && i < p->ninsns; i++) {
        uint32_t row = (d->f->table == FIELDS_OPERAND ? p->insns[i].operand : p->insns[i].attr) + d->nth;
        if (p->insns[i].op == d->p->insns[d->insn].op &&
            !memcmp(row_at(&r, row) + d->f->offset, d->old, d->f->size))
            put(d, row_at(&r, row) + d->f->offset, d->new, d->f->size);
    }
}

/* the same row of another program, where it had the same */
static void put_same(struct draw *d, struct program *p)
{
    struct fields_rows r = fields_rows(d->plan, p, d->f->table);
    if (d->row < r.n && !memcmp(row_at(&r, d->row) + d->f->offset, d->old, d->f->size))
        put(d, row_at(&r, d->row) + d->f->offset, d->new, d->f->size);
}

static uint32_t slot_of(const struct program *p, const struct slot *s)
{
    uint32_t i = 0;
    while (i < p->nslots && (p->slots[i].kind != s->kind || p->slots[i].arg != s->arg))
        i++;
    return i;
}

/* slot `row` becomes what another one of the same program is, in both programs and in the ranks' values */
static void redeclare(struct draw *d, uint32_t role)
{
    const struct slot *from = (const struct slot *)(const void *)d->new,
                      *old = (const struct slot *)(const void *)d->old;
    struct plan *plan = d->plan;
    uint32_t at = slot_of(plan->train[role], old), source = slot_of(plan->train[role], from);
    if (at == plan->train[role]->nslots || source == plan->train[role]->nslots)
        return;
    for (uint32_t i = 0; i < plan->ranks->nranks; i++)
        if (plan->ranks->ranks[i].role == role) {
            uint64_t *values = plan->ranks->values + plan->ranks->ranks[i].slot;
            put(d, &values[at], &values[source], sizeof *values);
        }
    for (int kind = 0; kind < 2; kind++) {
        struct program *p = kind ? plan->eval[role] : plan->train[role];
        put(d, &p->slots[at].kind, &from->kind, sizeof from->kind);
        put(d, &p->slots[at].arg, &from->arg, sizeof from->arg);
        put(d, &p->slots[at].most, &from->most, sizeof from->most);
    }
}

/* scope: 7 = wherever the same stands */
static void make(struct draw *d, uint32_t scope)
{
    struct plan *plan = d->plan;
    uint32_t role = d->c->role;
    if (d->f->type == FIELDS_REDECLARED) {
        for (uint32_t r = 0; r < plan->nroles; r++)
            if (r == role || scope >= 4)
                redeclare(d, r);
        return;
    }
    put(d, row_at(&d->rows, d->row) + d->f->offset, d->new, d->f->size);
    if (!d->p)
        return;
    bool code = d->f->table >= FIELDS_INSN && d->f->table <= FIELDS_WAIT,
         alike = scope == 3 || scope == 6 || scope == 7;
    for (uint32_t r = 0; r < plan->nroles; r++)
        for (int kind = 0; kind < 2; kind++) {
            struct program *p = kind ? plan->eval[r] : plan->train[r];
            bool mine = p == d->p, reached = mine || (r == role ? scope >= 4 : scope == 5 || scope == 7);
            if (alike && reached)
                put_alike(d, p);
            else if (reached && !mine && !code)
                put_same(d, p);
        }
}

static void describe(struct draw *d)
{
    const struct field *f = d->f;
    char place[64] = "", values[160] = "";
    if (d->p)
        snprintf(place, sizeof place, "role %u%s, ", d->c->role, d->c->evaluation ? " (evaluation)" : "");
    if (f->type == FIELDS_REAL) {
        double x, y;
        memcpy(&x, d->old, sizeof x);
        memcpy(&y, d->new, sizeof y);
        snprintf(values, sizeof values, ": %.17g -> %.17g", x, y);
    } else if (f->type == FIELDS_NAME) {
        snprintf(values, sizeof values, ": %.70s -> %.70s", d->old, d->new);
    } else if (f->size <= 8) {
        snprintf(values, sizeof values, ": %lld -> %lld", (long long)number_of(d->old, f->size),
                 (long long)number_of(d->new, f->size));
    }
    size_t n = strlen(d->c->text);
    snprintf(d->c->text + n, sizeof d->c->text - n, "%s%s%s %u, %s%s, %zu places", n ? "; " : "", place,
             fields_table_names[f->table], d->row, f->name, values, d->c->undo.n);
}

static void change(struct draw *d)
{
    size_t before = d->c->undo.n;
    memcpy(d->old, row_at(&d->rows, d->row) + d->f->offset, d->f->size);
    for (int tries = 0; tries < 8 && d->c->undo.n == before; tries++) {
        draw_value(d);
        if (memcmp(d->old, d->new, d->f->size) != 0)
            make(d, random_below(d->random, 8));
    }
    describe(d);
}

/* another field of the same row; not an attribute's number as the other kind */
static const struct field *another(struct draw *d)
{
    const struct field *first = d->f;
    for (int tries = 0; tries < 400; tries++) {
        const struct field *f = &fields_all[random_below(d->random, fields_n)];
        if (f->table == first->table && f != first && f->type < FIELDS_ROW && f->offset != first->offset &&
            (f->table != FIELDS_ATTR || strncmp(f->name, "u.", 2) != 0 ||
             (f->type == FIELDS_REAL) == (d->kind == ATTR_REAL)))
            return f;
    }
    return NULL;
}

bool fields_change(struct arena *a, struct plan *p, const struct field *f, uint64_t *random,
                   struct fields_change *c)
{
    struct draw d = {.arena = a, .plan = p, .random = random, .c = c, .f = f};
    *c = (struct fields_change){
        .field = f, .role = random_below(random, p->nroles), .evaluation = random_below(random, 5) == 0};
    if (f->table < FIELDS_RANKS)
        d.p = c->evaluation ? p->eval[c->role] : p->train[c->role];
    if (!pick_row(&d))
        return false;
    c->row = d.row;
    change(&d);
    if (c->undo.n && f->type < FIELDS_ROW && random_below(random, 8) == 0 && (c->second = d.f = another(&d)))
        change(&d);
    return c->undo.n > 0;
}

/* ---- references to slots, each to all ---- */

static bool is_reference(const struct field *f)
{
    return f->type == FIELDS_INDEX && f->of == FIELDS_SLOT;
}

static void add_site(struct plan *p, struct fields_site s, struct fields_site *out, uint32_t *n,
                     uint32_t room)
{
    struct program *q = s.evaluation ? p->eval[s.role] : p->train[s.role];
    struct fields_rows r = fields_rows(p, q, s.field->table);
    if (s.field->offset == offsetof(struct tensor, member_slot) && s.field->table == FIELDS_TENSOR &&
        !q->tensors[s.row].family)
        return; /* it has no members */
    s.slot = number_of(row_at(&r, s.row) + s.field->offset, s.field->size);
    bool code = s.field->table > FIELDS_INSN;
    for (uint32_t i = 0; i < *n && i < room; i++) {
        const struct program *x = out[i].evaluation ? p->eval[out[i].role] : p->train[out[i].role];
        if (out[i].field == s.field && out[i].slot == s.slot && out[i].role == s.role &&
            (!code || (out[i].nth == s.nth && x->insns[out[i].insn].op == q->insns[s.insn].op)))
            return;
    }
    if (*n < room)
        out[*n] = s;
    ++*n;
}

static void add_parts(struct plan *p, struct fields_site s, bool operand, struct fields_site *out,
                      uint32_t *n, uint32_t room)
{
    const struct program *q = s.evaluation ? p->eval[s.role] : p->train[s.role];
    for (s.insn = 0; s.insn < q->ninsns; s.insn++) {
        const struct insn *in = &q->insns[s.insn];
        const struct isa_info *info = isa_info(in->op);
        for (s.nth = 0; s.nth < (operand ? info->noperands : info->nattrs); s.nth++) {
            s.row = (operand ? in->operand : in->attr) + s.nth;
            bool there = operand
                             ? q->operands[s.row].buffer != NONE
                             : info->attr[s.nth].kind == ATTR_PEER || info->attr[s.nth].kind == ATTR_GROUP ||
                                   q->attrs[s.row].stride != 0; /* else nothing depends on it */
            if (there)
                add_site(p, s, out, n, room);
        }
    }
}

uint32_t fields_sites(struct plan *p, struct fields_site *out, uint32_t room)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < fields_n; f++)
        for (uint32_t k = 0; k < 2 * p->nroles && is_reference(&fields_all[f]); k++) {
            struct fields_site s = {.field = &fields_all[f], .role = k / 2, .evaluation = k % 2};
            struct program *q = s.evaluation ? p->eval[s.role] : p->train[s.role];
            bool operand = s.field->table == FIELDS_OPERAND;
            if (operand || s.field->table == FIELDS_ATTR) {
                add_parts(p, s, operand, out, &n, room);
                continue;
            }
            for (s.row = 0; s.row < fields_rows(p, q, s.field->table).n; s.row++)
                add_site(p, s, out, &n, room);
        }
    return n;
}

bool fields_refer(struct arena *a, struct plan *p, const struct fields_site *s, uint64_t slot,
                  bool everywhere, struct fields_change *c)
{
    struct draw d = {
        .arena = a, .plan = p, .c = c, .f = s->field, .row = s->row, .insn = s->insn, .nth = s->nth};
    *c = (struct fields_change){
        .field = s->field, .role = s->role, .row = s->row, .evaluation = s->evaluation};
    d.p = c->evaluation ? p->eval[c->role] : p->train[c->role];
    d.rows = fields_rows(p, d.p, s->field->table);
    memcpy(d.old, row_at(&d.rows, d.row) + d.f->offset, d.f->size);
    memcpy(d.new, &slot, d.f->size);
    make(&d, everywhere ? 7 : 0);
    describe(&d);
    return c->undo.n > 0;
}

void fields_undo(struct plan *p, const struct fields_change *c, const struct plan *base)
{
    for (size_t i = c->undo.n; i-- > 0;)
        memcpy(c->undo.at[i].at, c->undo.at[i].old, c->undo.at[i].size);
    p->mesh = base->mesh;
}

static bool is_for_people(const struct plan *p, const struct fields_change *c, const struct field *f)
{
    const struct program *q = c->evaluation ? p->eval[c->role] : p->train[c->role];
    bool step = f->table == FIELDS_BUFFER &&
                (q->buffers[c->row].kind == BUFFER_STEP || q->buffers[c->row].kind == BUFFER_WORKSPACE);
    return f->people || f->table == FIELDS_DECISION || (step && !strcmp(f->name, "dtype"));
}

bool fields_for_people(const struct plan *p, const struct fields_change *c)
{
    return is_for_people(p, c, c->field) && (!c->second || is_for_people(p, c, c->second));
}
