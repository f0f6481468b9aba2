/* EMIT: what is said lies where the table has it, with the table's marks; what the table requires and nobody says is noticed. */

#include "compiler/lower/build.h"

#include <CUnit/CUnit.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void suite_emit(void);

static struct lower *lower_new(struct arena *a)
{
    struct lower *l = ARENA_NEW(a, struct lower);
    struct buffer b = {.kind = BUFFER_STEP, .name = "b", .ring = NONE, .bytes = 4096, .stride = 4096, .bucket = NONE, .shard_slot = NONE};
    l->arena = a;
    l->p = program_new(0, 1);
    l->microbatch = 3;
    l->layer = 5;
    l->action = 'F';
    program_buffer(l->p, &b);
    program_buffer(l->p, &b);
    return l;
}

static struct mat matrix(uint32_t buffer, uint64_t at)
{
    return (struct mat){buffer, NONE, at, 4, 8, 8, DTYPE_F32, NONE, 0};
}

static const struct operand *operand(const struct lower *l, size_t k)
{
    return &l->p->operands[l->p->insns[l->p->ninsns - 1].operand + k];
}

static const struct attr *attr(const struct lower *l, size_t k)
{
    return &l->p->attrs[l->p->insns[l->p->ninsns - 1].attr + k];
}

static void test_operands(void)
{
    struct arena *a = arena_new();
    struct lower *l = lower_new(a);
    EMIT(l, ADD, .a = matrix(1, 64), .y = mat_add(matrix(0, 32)), .bias = mat_none());
    const struct insn *n = lower_last(l);
    CU_ASSERT_EQUAL(n->op, OP_ADD);
    CU_ASSERT_EQUAL(n->queue, QUEUE_COMPUTE);
    CU_ASSERT(n->microbatch == 3 && n->layer == 5 && n->action == 'F');
    CU_ASSERT(operand(l, OPND(ADD, y))->buffer == 0 && operand(l, OPND(ADD, y))->offset == 32);
    CU_ASSERT_EQUAL(operand(l, OPND(ADD, y))->mark, MARK_ADD);
    CU_ASSERT(operand(l, OPND(ADD, a))->buffer == 1 && operand(l, OPND(ADD, a))->offset == 64);
    CU_ASSERT_EQUAL(operand(l, OPND(ADD, a))->mark, MARK_READ);
    CU_ASSERT_EQUAL(operand(l, OPND(ADD, b))->buffer, NONE);
    CU_ASSERT_EQUAL(operand(l, OPND(ADD, bias))->buffer, NONE);
    EMIT(l, SCALE, .y = mat_write(matrix(0, 0)), .x = matrix(0, 0), .factor = 0.5);
    CU_ASSERT_EQUAL(operand(l, OPND(SCALE, y))->mark, MARK_WRITE);
    CU_ASSERT_EQUAL(attr(l, ATTR(SCALE, factor))->u.f, 0.5);
    EMIT(l, BROADCAST, .x = matrix(1, 0), .group = 7, .root = 2);
    CU_ASSERT_EQUAL(operand(l, OPND(BROADCAST, x))->mark, MARK_UPDATE);
    CU_ASSERT(attr(l, ATTR(BROADCAST, group))->slot == 7 && attr(l, ATTR(BROADCAST, group))->u.i == 0);
    CU_ASSERT(attr(l, ATTR(BROADCAST, root))->u.i == 2 && attr(l, ATTR(BROADCAST, root))->slot == NONE);
    program_free(l->p);
    arena_free(a);
}

static void test_attributes(void)
{
    struct arena *a = arena_new();
    struct lower *l = lower_new(a);
    struct mat m = matrix(0, 0);
    EMIT(l, EMBED, .y = m, .tokens = m, .table = m, .start = bind_to(5, 1, 9));
    CU_ASSERT(attr(l, 0)->u.i == 5 && attr(l, 0)->slot == 1 && attr(l, 0)->stride == 9);
    EMIT(l, EMBED, .y = m, .tokens = m, .table = m, .start = bind_to(5, NONE, 9));
    CU_ASSERT(attr(l, 0)->u.i == 5 && attr(l, 0)->slot == NONE && attr(l, 0)->stride == 0);
    EMIT(l, ATTENTION, .o = m, .lse = m, .q = m, .k = m, .v = m, .heads = 1, .kv = 1, .head = 8, .sequence = 4, .scale = 1,
         .window = 0, .softcap = 0);
    CU_ASSERT_EQUAL(attr(l, ATTR(ATTENTION, head))->u.i, 8);
    CU_ASSERT_EQUAL(attr(l, ATTR(ATTENTION, alibi))->u.i, 0);
    CU_ASSERT(attr(l, ATTR(ATTENTION, first_head))->u.i == 0 && attr(l, ATTR(ATTENTION, first_head))->slot == NONE);
    program_free(l->p);
    arena_free(a);
}

/* does a child that emits it so fail an assertion? */
#define REFUSED(op, ...)                                                                                     \
    do {                                                                                                     \
        fflush(NULL);                                                                                        \
        pid_t child = fork();                                                                                \
        if (child == 0) {                                                                                    \
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});                                                  \
            signal(SIGABRT, SIG_DFL);                                                                        \
            dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);                                                \
            EMIT(l, op, __VA_ARGS__);                                                                        \
            _exit(0);                                                                                        \
        }                                                                                                    \
        int status = 0;                                                                                      \
        CU_ASSERT(child > 0 && waitpid(child, &status, 0) == child);                                         \
        CU_ASSERT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);                                       \
    } while (0)

static void test_unsaid(void)
{
    struct arena *a = arena_new();
    struct lower *l = lower_new(a);
    struct mat m = matrix(0, 0);
    REFUSED(ADD, .y = mat_write(m));
    REFUSED(ADD, .a = m);
    REFUSED(ADD, .y = mat_by(m, MARK_READ), .a = m);
    REFUSED(COPY, .y = m, .x = mat_none());
    REFUSED(SCALE, .y = mat_write(m), .x = m);
    REFUSED(SCALE, .y = mat_write(m), .x = m, .factor = NAN);
    REFUSED(RELU, .y = m, .x = m);
    REFUSED(EMBED, .y = m, .tokens = m, .table = m);
    REFUSED(SEND, .x = m);
    REFUSED(ALL_REDUCE, .x = m, .max = 0);
    program_free(l->p);
    arena_free(a);
}

void suite_emit(void)
{
    CU_pSuite s = CU_add_suite("emit", NULL, NULL);
    CU_add_test(s, "operands and their marks", test_operands);
    CU_add_test(s, "attributes", test_attributes);
    CU_add_test(s, "what is required is said", test_unsaid);
}
