/* Which rank this process was started as: every launcher's variables, what is no rank, and the name that all
 * ranks of one job and no other meet under. */

#include "runtime/launch.h"

#include <CUnit/CUnit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void suite_launch(void);

static const char *const variables[][3] = {
    {"RANK", "WORLD_SIZE", "MASTER_PORT"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess_base_jobid"},
    {"PMI_RANK", "PMI_SIZE", "PMI_ID"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"},
};
enum { LAUNCHERS = sizeof variables / sizeof *variables };

/* of a host's ranks, or of hosts; NULL: the launcher does not say */
static const char *const places[][2] = {{"LOCAL_WORLD_SIZE", NULL},
                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
                                        {"MPI_LOCALNRANKS", NULL},
                                        {NULL, "SLURM_STEP_NUM_NODES"}};

static const char key[] = "0123456789abcdefgh"; /* 16 characters of it are used */

/* launch_detect() with these variables of a launcher set, and none of another */
static enum status detect(int launcher, const char *const values[3], struct launch *l, struct error *error)
{
    for (int i = 0; i < LAUNCHERS; i++)
        for (int k = 0; k < 3; k++)
            unsetenv(variables[i][k]);
    for (int k = 0; k < 3; k++)
        if (values[k])
            setenv(variables[launcher][k], values[k], 1);
    enum status s = launch_detect(l, key, error);
    for (int k = 0; k < 3; k++)
        unsetenv(variables[launcher][k]);
    return s;
}

static void test_launchers(void)
{
    for (int i = 0; i < LAUNCHERS; i++) {
        struct launch l;
        char want[64];
        struct error error = {""};
        CU_ASSERT_EQUAL(detect(i, (const char *const[]){"3", "4", "29500"}, &l, &error), STATUS_OK);
        CU_ASSERT(l.given && l.rank == 3 && l.nranks == 4);
        snprintf(want, sizeof want, "/llmrun-%u-0123456789abcdef-29500", (unsigned)getuid());
        CU_ASSERT_STRING_EQUAL(l.name, want);
        for (int missing = 0; missing < 3; missing++) {
            const char *values[3] = {"3", "4", "29500"};
            values[missing] = NULL;
            CU_ASSERT_EQUAL(detect(i, values, &l, &error), STATUS_OK);
            CU_ASSERT_FALSE(l.given);
        }
    }
}

/* ranks are apart where fewer of them than there are run on this host, or on more hosts than one */
static void test_hosts(void)
{
    static const char *const said[][2] = {{"4", "1"}, {"3", "2"}, {"x", "x"}, {"", ""}};
    for (int i = 0; i < LAUNCHERS; i++)
        for (int k = 0; k < 4; k++) {
            const char *name = places[i][places[i][0] == NULL];
            struct launch l;
            struct error error = {""};
            setenv(name, said[k][places[i][0] == NULL], 1);
            CU_ASSERT_EQUAL(detect(i, (const char *const[]){"3", "4", "29500"}, &l, &error), STATUS_OK);
            CU_ASSERT_EQUAL(l.apart, k == 1);
            unsetenv(name);
            CU_ASSERT_EQUAL(detect(i, (const char *const[]){"3", "4", "29500"}, &l, &error), STATUS_OK);
            CU_ASSERT_FALSE(l.apart);
        }
}

static void test_no_rank(void)
{
    static const char *const bad[][2] = {{"4", "4"},          {"5", "4"}, {"0", "0"},  {"x", "4"},
                                         {"1", "4x"},         {"1", ""},  {"-1", "4"}, {"4294967295", "4"},
                                         {"0", "4294967295"}, {"0", "-1"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct launch l;
        struct error error = {""};
        CU_ASSERT_EQUAL(detect(0, (const char *const[]){bad[i][0], bad[i][1], "1"}, &l, &error), STATUS_USAGE);
        CU_ASSERT_STRING_EQUAL(error.text, "RANK and WORLD_SIZE are set but are not a rank and a number of ranks");
    }
    struct launch l;
    struct error error = {""};
    CU_ASSERT_EQUAL(detect(0, (const char *const[]){"4294967293", "4294967294", "1"}, &l, &error), STATUS_OK);
    CU_ASSERT(l.rank == 4294967293 && l.nranks == 4294967294);
}

/* digits of the job's name alone, and no more than 23 of them */
static void test_names(void)
{
    static const char *const jobs[][2] = {{"tcp://h:12/3", "123"},
                                          {"x", ""},
                                          {"09", "09"},
                                          {"12345678901234567890123", "12345678901234567890123"},
                                          {"1234567890123456789012345678", "12345678901234567890123"}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct launch l;
        char want[80];
        struct error error = {""};
        CU_ASSERT_EQUAL(detect(2, (const char *const[]){"0", "1", jobs[i][0]}, &l, &error), STATUS_OK);
        snprintf(want, sizeof want, "/llmrun-%u-0123456789abcdef-%s", (unsigned)getuid(), jobs[i][1]);
        CU_ASSERT_STRING_EQUAL(l.name, want);
    }
}

void suite_launch(void)
{
    CU_pSuite s = CU_add_suite("launch", NULL, NULL);
    CU_add_test(s, "each launcher's variables", test_launchers);
    CU_add_test(s, "one host or several", test_hosts);
    CU_add_test(s, "what is no rank", test_no_rank);
    CU_add_test(s, "where ranks of a job meet", test_names);
}
