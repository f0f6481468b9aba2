/* Curves of collectives: measured by ranks of a fake NCCL that knows its rules, printed as a block that a cluster file takes. */

#include "runtime/calibrate.h"
#include "compiler/topology/topo.h"
#include "tests/fake/fake_nccl.h"

#include <CUnit/CUnit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, NODE = 2 };

/* exit status of a rank: 0 = fine */
static int rank_body(const struct cuda_plugin *cuda, const struct nccl_functions *nccl, struct calibrate_group g, FILE *out)
{
    char error[300], complaints[500];
    enum status st = calibrate_collectives(cuda, nccl, &g, out, error, sizeof error);
    fflush(out);
    if (st != STATUS_OK)
        printf("\n    rank %u: %s", g.rank, error);
    fake_nccl_complaints(complaints, sizeof complaints);
    if (!complaints[0])
        fake_cuda_complaints(complaints, sizeof complaints);
    if (complaints[0])
        printf("\n    rank %u: %s", g.rank, complaints);
    fflush(stdout);
    return st != STATUS_OK || complaints[0];
}

/* text: what the first rank prints; false if a rank fails */
static bool measure(uint32_t ranks, uint32_t node, char *text, size_t size)
{
    const struct fake_setup device = {.devices = RANKS, .memory_bytes = 64 << 20};
    const struct fake_nccl_setup quiet = {.seed = 0};
    const struct cuda_plugin *cuda = fake_cuda_open(&device);
    const struct nccl_functions *nccl = fake_nccl_open(&quiet, ranks);
    struct calibrate_group g = {.nranks = ranks, .per_node = node, .most_bytes = 1 << 14};
    FILE *out = tmpfile();
    bool fine = cuda && nccl && out && !nccl->GetUniqueId(&g.id);
    for (g.rank = 0; fine && g.rank < ranks; g.rank++) {
        g.device = (int)g.rank;
        fflush(NULL);
        if (fork() == 0)
            _exit(rank_body(cuda, nccl, g, out));
    }
    for (uint32_t r = 0, status; r < ranks; r++)
        fine = wait((int *)&status) > 0 && WIFEXITED((int)status) && WEXITSTATUS((int)status) == 0 && fine;
    rewind(out);
    text[fread(text, 1, size - 1, out)] = 0;
    fclose(out);
    fake_nccl_close();
    fake_cuda_close();
    return fine;
}

static void test_curves(void)
{
    static char text[1 << 18], file[(1 << 18) + 1000];
    CU_ASSERT_FATAL(measure(RANKS, NODE, text, sizeof text));
    snprintf(file, sizeof file,
             "<cluster version=\"1\"><node-type id=\"n\" gpus=\"%d\"><gpu model=\"H100-SXM\"/>"
             "<scale-up kind=\"nvswitch\" bandwidth=\"450GB/s\"/><nic count=\"2\" bandwidth=\"400Gb/s\"/></node-type>"
             "<nodes type=\"n\" count=\"%d\"/><fabric><tier name=\"leaf\" span=\"all\"/></fabric>%s</cluster>",
             NODE, RANKS / NODE, text);
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    struct source s = {"measured.xml", file, strlen(file), false};
    struct topo *t = topo_parse(a, d, &s, NULL);
    diag_print(d, stdout, false);
    CU_ASSERT_EQUAL(diag_errors(d), 0);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    /* a node, all, and one rank of each node: 3 shapes of 6 kinds */
    CU_ASSERT_EQUAL(t->nmeasured, 18);
    arena_free(a);
}

static void test_alone(void)
{
    static char text[1 << 14];
    CU_ASSERT(measure(1, 1, text, sizeof text));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "one rank, send_recv to itself"));
    CU_ASSERT_PTR_NULL(strstr(text, "<collective"));
}

/* a device too small to measure on: said in words, and all that was made before is given back */
static void test_no_room(void)
{
    const struct fake_setup small = {.devices = 1, .memory_bytes = 64 << 20};
    char error[300] = "", complaints[500];
    FILE *out = tmpfile();
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    CU_ASSERT_EQUAL(calibrate(fake_cuda_open(&small), out, error, sizeof error), STATUS_WORLD);
    CU_ASSERT_STRING_EQUAL(error, "cannot use the device: out of memory");
    CU_ASSERT_EQUAL(ftell(out), 0);
    fake_cuda_complaints(complaints, sizeof complaints);
    CU_ASSERT_STRING_EQUAL(complaints, "");
    fake_cuda_close();
    fclose(out);
}

void suite_calibrate(void);
void suite_calibrate(void)
{
    CU_pSuite s = CU_add_suite("calibrate", NULL, NULL);
    CU_add_test(s, "curves of collectives by four ranks on two nodes", test_curves);
    CU_add_test(s, "one rank sends to itself", test_alone);
    CU_add_test(s, "a device without room", test_no_room);
}
