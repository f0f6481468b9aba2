/* Reading and writing programs, compared in the same run with dumping their arrays as they lie in memory.
 *
 * Two programs: layers and microbatches that repeat, as lowering makes them, and random instructions that
 * mostly do not.  size ratio = bytes of the arrays / bytes of the file; times are per instruction, best of
 * five; memcpy is copying the arrays and hashing the copy, the least that a plain dump with a checksum costs.
 */

#include "runtime/hash.h"
#include "tests/runtime/random_program.h"

#include "tests/runtime/random_program.c" /* benchmarks link no test */

#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void keep_least(double *least, double start, uint32_t n)
{
    double ns = (now_s() - start) * 1e9 / n;
    if (*least <= 0 || ns < *least)
        *least = ns;
}

/* bytes of the arrays of instructions; hashed into *hash */
static size_t dump(const struct program *p, char *to, uint64_t *hash)
{
    const struct {
        const void *from;
        size_t n;
    } parts[] = {{p->insns, p->ninsns * sizeof *p->insns},
                 {p->operands, p->noperands * sizeof *p->operands},
                 {p->attrs, p->nattrs * sizeof *p->attrs},
                 {p->waits, p->nwaits * sizeof *p->waits}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (to && parts[i].n)
            memcpy(to + n, parts[i].from, parts[i].n);
        n += parts[i].n;
    }
    if (to)
        *hash = hash64(to, n, 0);
    return n;
}

static int bench(const char *name, struct program *p)
{
    double check = 0, encode = 0, decode = 0, copy = 0;
    struct error error;
    size_t size = 0, arrays = dump(p, NULL, NULL);
    uint64_t hash = 0;
    char *to = malloc(arrays);
    for (int i = 0; to && i < 5; i++) {
        struct program *q;
        uint8_t *bytes;
        double t = now_s();
        dump(p, to, &hash);
        keep_least(&copy, t, p->ninsns);
        t = now_s();
        if (program_check(p, &error) != STATUS_OK)
            break;
        keep_least(&check, t, p->ninsns);
        t = now_s();
        if (program_encode(p, &bytes, &size) != STATUS_OK)
            break;
        keep_least(&encode, t, p->ninsns);
        t = now_s();
        if (program_decode(bytes, size, &q, &error) != STATUS_OK)
            break;
        keep_least(&decode, t, p->ninsns);
        program_free(q);
        free(bytes);
    }
    printf("%-10s %8u %10zu %7.1f %10.1f %8.1f %8.1f %8.1f %8.1f\n", name, p->ninsns, size,
           (double)arrays / (double)size, (double)size / p->ninsns, copy, check, encode, decode);
    free(to);
    program_free(p);
    return decode > 0 ? 0 : 1;
}

int main(void)
{
    printf("program     instrs       bytes   ratio   bytes/insn   memcpy    check   encode   decode   "
           "ns/insn\n");
    return bench("layers", layered_program(8, 900)) | bench("random", random_program(1, 100000));
}
