/* The loader's rules one by one: the range of every integer attribute, every relation between the shapes of
 * an instruction, every section of a file - and that no rule has been forgotten.
 *
 * Ranges and relations are told again here, apart from the loader's own tables.  The last test reads the
 * formats of all refusals out of the loader's source: each must fit a message that a case expected and got,
 * here or in the files of refused.h, or stand below with a reason. */

#include "runtime/program.h"
#include "runtime/program_words.h"
#include "tests/formats.h"
#include "tests/runtime/program_parse.h"
#include "tests/runtime/random_program.h"
#include "tests/runtime/refused.h"

#include "compiler/support/vec.h"

#include <CUnit/Basic.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void suite_program_rules(void);

enum { RANDOM_INSNS = 4000 };

/* What program_check() says behind "instruction 7 (its text): ", "" if nothing. */
static enum status says(const struct program *p, char *said, size_t size)
{
    struct error error = {""};
    const char *at = NULL;
    enum status s = program_check(p, &error);
    if (s != STATUS_OK)
        for (const char *next = error.text; (next = strstr(next, "): ")); next += 3)
            at = at ? at : next + 3;
    snprintf(said, size, "%s", at ? at : error.text);
    return s;
}

/* ---- integer attributes ---- */

static const struct range {
    const char *name;
    int64_t least, most;
} ranges[] = {
    {"sequence", 1, UINT32_MAX},
    {"heads", 1, UINT32_MAX},
    {"kv", 1, UINT32_MAX},
    {"head", 1, UINT32_MAX},
    {"dims", 2, UINT32_MAX},
    {"from", 0, UINT32_MAX},
    {"vocab", 1, UINT32_MAX},
    {"root", 0, UINT32_MAX},
    {"window", 0, UINT32_MAX},
    {"alibi", 0, UINT32_MAX},
    {"scaling", 0, 15},
    {"power", 1, 2},
    {"adjacent", 0, 1},
    {"inverse", 0, 1},
    {"tanh", 0, 1},
    {"max", 0, 1},
    {"sigmoid", 0, 1},
    {"normalize", 0, 1},
    {"groups", 1, UINT32_MAX},
    {"pick", 1, UINT32_MAX},
    {"experts", 1, UINT32_MAX},
    {"blocks", 1, UINT32_MAX},
    {"rows", 1, UINT32_MAX},
    {"capacity", 0, UINT32_MAX},
    {"parts", 1, UINT32_MAX},
    {"kparts", 1, UINT32_MAX},
    {"by", 1, UINT32_MAX},
    {"fp8", 0, 4},
};

static struct range range_of(const char *name)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!strcmp(ranges[i].name, name))
            return ranges[i];
    return (struct range){name, -(int64_t)LIMIT_BYTES, (int64_t)LIMIT_BYTES};
}

static void refuse_value(const struct program *p, struct attr *a, int64_t value, const char *message)
{
    char said[800];
    struct attr before = *a;
    a->u.i = value;
    enum status s = says(p, said, sizeof said);
    *a = before;
    refused_expect(s, said, message);
}

static void test_ranges(void)
{
    struct program *p = random_program(1, RANDOM_INSNS);
    bool seen[NOPS] = {false};
    size_t n = 0;
    for (uint32_t i = 0; i < p->ninsns; i++) {
        enum op op = p->insns[i].op;
        const struct isa_info *info = isa_info(op);
        for (uint32_t k = 0; k < info->nattrs && !seen[op]; k++) {
            struct attr *a = &p->attrs[p->insns[i].attr + k];
            const struct range r = range_of(info->attr[k].name);
            char message[200];
            if (info->attr[k].kind != ATTR_INT)
                continue;
            snprintf(message, sizeof message, "attribute %s must be %" PRId64 " to %" PRId64, r.name, r.least,
                     r.most);
            refuse_value(p, a, r.least - 1, message);
            refuse_value(p, a, r.most + 1, message);
            a->slot = 0;
            snprintf(message, sizeof message, "attribute %s is not a plain integer", r.name);
            refuse_value(p, a, a->u.i, message);
            a->slot = NONE;
            n++;
        }
        seen[op] = true;
    }
    CU_ASSERT(n > 60);
    program_free(p);
}

/* ---- relations between shapes ---- */

static const struct relation {
    enum op op;
    const char *values; /* of names of the row: of attributes and of sides of its operands */
    const char *message;
} relations[] = {
    {OP_TOKENS, "t=1 sequence=2", "t = 1 must be divisible by sequence = 2"},
    {OP_TOKENS_AHEAD, "t=1 sequence=2", "t = 1 must be divisible by sequence = 2"},
    {OP_ATTENTION, "t=1 sequence=2", "t = 1 must be divisible by sequence = 2"},
    {OP_ATTENTION, "t=1 sequence=1 heads=1 kv=2 head=1 u=1", "heads = 1 must be divisible by kv = 2"},
    {OP_ATTENTION_I, "t=1 sequence=2", "t = 1 must be divisible by sequence = 2"},
    {OP_ATTENTION_I, "t=1 sequence=1 heads=1 kv=2 head=1 u=1", "heads = 1 must be divisible by kv = 2"},
    {OP_ROPE, "a=1 head=2 dims=2", "a = 1 must be divisible by head = 2"},
    {OP_ROPE, "a=2 head=2 dims=4", "dims = 4 must be at most head = 2"},
    {OP_ROPE, "a=4 head=4 dims=3", "dims = 3 must be divisible by 2"},
    {OP_POSITION, "s=1 sequence=2", "sequence = 2 must be at most s = 1"},
    {OP_POSITION_W, "s=1 sequence=2", "sequence = 2 must be at most s = 1"},
    {OP_ROUTE, "e=1 k=2 groups=1 pick=1", "k = 2 must be at most e = 1"},
    {OP_ROUTE, "e=2 k=1 groups=3 pick=1", "e = 2 must be divisible by groups = 3"},
    {OP_ROUTE, "e=2 k=1 groups=2 pick=3", "pick = 3 must be at most groups = 2"},
    {OP_ARRANGE, "experts=2 blocks=3", "experts = 2 must be divisible by blocks = 3"},
    {OP_ARRANGE_ONCE, "experts=2 blocks=3 rows=1", "experts = 2 must be divisible by blocks = 3"},
    {OP_GROUPED_NT, "m=1 blocks=2 experts=1 n=1 k=1", "m = 1 must be divisible by blocks = 2"},
    {OP_GROUPED_NN, "m=1 blocks=2 experts=1 n=1 k=1", "m = 1 must be divisible by blocks = 2"},
    {OP_GROUPED_TN, "m=1 blocks=2 experts=1 n=1 k=1", "m = 1 must be divisible by blocks = 2"},
    {OP_ATTENTION_PART, "t=1 sequence=2", "t = 1 must be divisible by sequence = 2"},
    {OP_ATTENTION_PART, "t=2 u=1 sequence=2", "u = 1 must be divisible by sequence = 2"},
    {OP_ATTENTION_PART, "t=2 u=2 sequence=2 heads=1 kv=2 head=1 w=1",
     "heads = 1 must be divisible by kv = 2"},
    {OP_ATTENTION_PART, "t=1 u=1 sequence=1", "sequence = 1 must be divisible by 2"},
    {OP_ATTENTION_PART_I, "t=1 sequence=2", "t = 1 must be divisible by sequence = 2"},
    {OP_ATTENTION_PART_I, "t=2 u=1 sequence=2", "u = 1 must be divisible by sequence = 2"},
    {OP_ATTENTION_PART_I, "t=2 u=2 sequence=2 heads=1 kv=2 head=1 w=1",
     "heads = 1 must be divisible by kv = 2"},
    {OP_ATTENTION_PART_I, "t=1 u=1 sequence=1", "sequence = 1 must be divisible by 2"},
};

/* a name's value in "t=1 sequence=2"; 0: it has none */
static uint32_t value_of(const char *values, const char *name, size_t n)
{
    for (const char *at = values; *at; at += strcspn(at, " "), at += *at == ' ')
        if (!strncmp(at, name, n) && at[n] == '=')
            return (uint32_t)strtoul(at + n + 1, NULL, 10);
    return 0;
}

/* of one side of an operand, "t" or "heads*head"; as it is where no value is given */
static uint32_t side(const char *values, const char *text, uint32_t is)
{
    size_t n = strcspn(text, "*");
    uint32_t x = value_of(values, text, n),
             y = text[n] ? value_of(values, text + n + 1, strlen(text + n + 1)) : 1;
    return x && y ? x * y : is;
}

/* the first instruction of its kind that has an output says this with other values */
static void refuse_relation(struct program *p, const struct relation *r)
{
    const struct isa_info *info = isa_info(r->op);
    char said[800];
    uint32_t i = 0;
    while (i < p->ninsns && (p->insns[i].op != r->op || p->operands[p->insns[i].operand].buffer == NONE))
        i++;
    CU_ASSERT_FATAL(i < p->ninsns);
    for (uint32_t k = 0; k < info->noperands; k++) {
        struct operand *o = &p->operands[p->insns[i].operand + k];
        if (o->buffer == NONE)
            continue;
        o->rows = side(r->values, info->operand[k].rows, o->rows);
        o->cols = side(r->values, info->operand[k].cols, o->cols);
        o->ld = o->cols;
    }
    for (uint32_t k = 0; k < info->nattrs; k++) {
        uint32_t v = value_of(r->values, info->attr[k].name, strlen(info->attr[k].name));
        if (v)
            p->attrs[p->insns[i].attr + k].u.i = v;
    }
    enum status s = says(p, said, sizeof said);
    refused_expect(s, said, r->message);
}

static void test_relations(void)
{
    for (size_t i = 0; i < sizeof relations / sizeof *relations; i++) {
        struct program *p = random_program(1, RANDOM_INSNS);
        refuse_relation(p, &relations[i]);
        program_free(p);
    }
}

/* ---- sections of a file ---- */

/* Every bit of a file is wrong once, with hashes that fit: each of these is said of some, and no file is
 * taken for the one it was. */
static void test_sections(void)
{
    static const char *const messages[] = {
        "its header fields are malformed", "its tables are malformed",
        "its segments are malformed",     "its frames are malformed",
        "its waits are malformed",        "its calls are malformed",
        "it is not written in the one form its contents have",
    };
    bool said[sizeof messages / sizeof *messages] = {false};
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct program *p = random_program(seed, 12), *q;
        uint8_t *bytes;
        size_t size;
        struct error error;
        CU_ASSERT_EQUAL_FATAL(program_encode(p, &bytes, &size), STATUS_OK);
        uint8_t *copy = malloc(size);
        CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
        for (size_t at = 0; at < 8 * size; at++) {
            memcpy(copy, bytes, size);
            copy[at / 8] ^= (uint8_t)(1u << at % 8);
            repair_file(copy, size, isa_fingerprint());
            enum status s = program_decode(copy, size, &q, &error);
            CU_ASSERT(s == STATUS_OK || s == STATUS_INPUT);
            for (size_t k = 0; s != STATUS_OK && k < sizeof messages / sizeof *messages; k++)
                if (!said[k] && !strcmp(error.text, messages[k])) {
                    said[k] = true;
                    refused_expect(s, error.text, messages[k]);
                }
            program_free(q);
        }
        free(copy);
        free(bytes);
        program_free(p);
    }
    for (size_t k = 0; k < sizeof messages / sizeof *messages; k++) {
        if (!said[k])
            printf("\n  never said: \"%s\"", messages[k]);
        CU_ASSERT(said[k]);
    }
}

/* the text of an instruction with more waits than a program can count */
static void test_waits(void)
{
    struct program *p;
    char *text = malloc(8192);
    struct error error = {""};
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    int n = snprintf(text, 8192, "%s", small_program) - 1;
    for (int k = 0; k < 256; k++)
        n += snprintf(text + n, 8192 - (size_t)n, " <compute:0");
    refused_expect(program_parse(text, (size_t)n, &p, &error), error.text, "line 26: too many waits");
    free(text);
}

static void test_sizes(void)
{
    struct program *p;
    struct error error = {""};
    const uint8_t none = 0;
    refused_expect(program_decode(&none, (size_t)LIMIT_FILE + 1, &p, &error), error.text,
                   "2147483649 bytes, at most 2147483648 are read");
    refused_expect(program_parse("", (size_t)LIMIT_FILE + 1, &p, &error), error.text,
                   "2147483649 bytes, at most 2147483648 are read");
    refused_expect(program_parse("", 0, &p, &error), error.text, "line 0: an empty text");
}

/* ---- no rule without a case ---- */

static struct refused seen; /* since the suite began */

static const char *const loader[] = {"runtime/program_check.c",   "runtime/program_check_code.c", "runtime/program_ranks.c",
                                     "runtime/program_bytes.c",   "runtime/program_decode.c",
                                     "tests/runtime/program_parse.c", "tests/runtime/program_scan.c"};
static const struct {
    const char *format, *why;
} excuses[] = {
    {"shrank while being read", "a file gets shorter between two calls of the system"},
};

static bool excused(const char *format)
{
    for (size_t i = 0; i < sizeof excuses / sizeof *excuses; i++)
        if (!strcmp(excuses[i].format, format))
            return true;
    return false;
}

static bool has_case(const char *format, const struct refused *all)
{
    bool words = true, found = false;
    for (size_t i = 0; i < all->messages.n && words && !found; i++)
        found = formats_fit(format, all->messages.at[i], &words);
    CU_ASSERT(!found || !words || !excused(format)); /* an excuse for what has a case */
    return found || !words || excused(format);
}

struct source_file {
    const char *name;
    const struct refused *all;
    size_t n;
};

static bool take_sentence(void *context, const char *format)
{
    struct source_file *f = context;
    bool fine = !strchr(format, ' ') || has_case(format, f->all);
    f->n += strchr(format, ' ') != NULL;
    if (!fine)
        printf("\n  %s: no case for \"%s\"", f->name, format);
    CU_ASSERT(fine);
    return true;
}

/* sentences among the arguments of calls that refuse, and reasons that a function returns to one that does */
static size_t need_cases(struct arena *a, const char *file, const char *text, const struct refused *all)
{
    static const char *const calls[] = {"FAULT(", "_fault(", "return \""};
    struct source_file f = {file, all, 0};
    for (size_t k = 0; k < sizeof calls / sizeof *calls; k++)
        formats_of_calls(a, text, calls[k], take_sentence, &f);
    return f.n;
}

static void test_complete(void)
{
    struct arena *a = seen.arena;
    size_t n = 0;
    program_refusals();
    program_bad_refusals();
    program_damage_refusals();
    ranks_refusals();
    for (size_t i = 0; i < sizeof loader / sizeof *loader; i++)
        n += need_cases(a, loader[i], formats_read(a, loader[i]), &seen);
    CU_ASSERT(n > 120);
}

static int begin(void)
{
    seen = (struct refused){.arena = arena_new()};
    refused_collect(&seen);
    return 0;
}

static int end(void)
{
    refused_collect(NULL);
    arena_free(seen.arena);
    return 0;
}

void suite_program_rules(void)
{
    CU_pSuite s = CU_add_suite("program_rules", begin, end);
    CU_add_test(s, "ranges of attributes", test_ranges);
    CU_add_test(s, "relations between shapes", test_relations);
    CU_add_test(s, "sections of a file", test_sections);
    CU_add_test(s, "waits", test_waits);
    CU_add_test(s, "sizes", test_sizes);
    CU_add_test(s, "every refusal has a case", test_complete);
}
