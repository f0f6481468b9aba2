/* The plan as a folder: what is written is read back, with what the cluster file imported; whatever was
 * changed is refused by name; folders of others are left alone. */

#include "tests/compiler/random_plan.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void suite_plan_files(void);

#define CLUSTER "tests/cases/imports/cluster.xml"

struct place {
    struct arena *a;
    struct plan *plan;
    char root[64], dir[80]; /* a folder of this test's own, and the plan in it */
    struct error error;
};

static void open_place(struct place *p)
{
    *p = (struct place){.a = arena_new()};
    snprintf(p->root, sizeof p->root, "/tmp/llmc-test-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(p->root));
    snprintf(p->dir, sizeof p->dir, "%s/plan", p->root);
    struct job *job = text_job(p->a, tiny_llama);
    struct topo *topo = topo_read(p->a, diag_new(p->a), CLUSTER);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
    struct decision d = text_decision(p->a, job, topo, "tp=2 sp=1");
    const char *why = "";
    p->plan = compile_decision(p->a, job, topo, &d, &(struct compile_options){0}, &why);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p->plan);
}

static void close_place(struct place *p)
{
    plan_close(p->plan);
    arena_free(p->a);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", p->root);
    CU_ASSERT_EQUAL(system(command), 0);
}

static enum status write_plan(struct place *p, bool force)
{
    return plan_write(p->plan, p->dir, force, &p->error);
}

static enum status read_plan(struct place *p, struct plan **out)
{
    *p->error.text = 0;
    return plan_read(p->a, p->dir, out, &p->error);
}

static const char *path_of(struct place *p, const char *name)
{
    return arena_printf(p->a, "%s/%s", p->dir, name);
}

static void put(const char *path, const char *mode, const char *text)
{
    FILE *f = fopen(path, mode);
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(text, f);
    CU_ASSERT_EQUAL(fclose(f), 0);
}

/* cluster.xml of the folder stands alone: what its hrefs named is in it */
static void test_imports(void)
{
    struct place p;
    struct plan *back;
    open_place(&p);
    CU_ASSERT_EQUAL_FATAL(write_plan(&p, false), STATUS_OK);
    CU_ASSERT_EQUAL_FATAL(read_plan(&p, &back), STATUS_OK);
    const struct topo *was = p.plan->topo, *is = back->topo;
    CU_ASSERT(is->types[0].detail && is->types[0].detail->nnics == 2);
    CU_ASSERT_EQUAL_FATAL(is->nmeasured, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL_FATAL(is->measured[i].npoints, was->measured[i].npoints);
        for (uint32_t k = 0; k < is->measured[i].npoints; k++)
            CU_ASSERT(is->measured[i].points[k].seconds == was->measured[i].points[k].seconds);
    }
    plan_close(back);
    close_place(&p);
}

/* every file of the folder in turn: longer, or gone */
static void test_changed(void)
{
    static const char *const names[] = {"plan.json",           "model.llm", "cluster.xml", "programs/0.bin",
                                        "programs/eval-0.bin", "ranks.bin", "MANIFEST"};
    for (int gone = 0; gone < 2; gone++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            struct place p;
            struct plan *back;
            open_place(&p);
            CU_ASSERT_EQUAL_FATAL(write_plan(&p, false), STATUS_OK);
            if (gone)
                CU_ASSERT_EQUAL(unlink(path_of(&p, names[i])), 0)
            else
                put(path_of(&p, names[i]), "a", " ");
            CU_ASSERT_EQUAL(read_plan(&p, &back), STATUS_INPUT);
            CU_ASSERT_PTR_NOT_NULL(strstr(p.error.text, names[i]));
            plan_close(back);
            close_place(&p);
        }
}

/* a folder whose hashes are right, but what the files say is not */
static void test_forged(void)
{
    static const struct {
        const char *command, *says; /* in the folder, before its files are hashed anew */
    } cases[] = {
        {"echo '{' >plan.json", "/plan.json: "},
        {"echo '{}' >plan.json", "/plan.json: has no decision"},
        {"echo '{\"decision\": {}}' >plan.json", "/plan.json: has no list 'set'"},
        {"sed -i 's/\"set\": \\[[^]]*]/\"set\": [\"nonsense=1\"]/' plan.json",
         "/plan.json: its 'set' cannot be applied to model.llm"},
        {"sed -i 's/\"tp\": [0-9]*/\"tp\": 0/' plan.json", "/plan.json: "},
        {"echo >model.llm", "/model.llm cannot be read"},
        {"echo >cluster.xml", "/cluster.xml cannot be read"},
        {"sed -i /ranks.bin/d MANIFEST", "/MANIFEST does not list ranks.bin"},
        {"sed -i /eval-0/d MANIFEST", "/MANIFEST does not list programs/eval-0.bin"},
        {"cp programs/0.bin programs/eval-0.bin", "/programs/eval-0.bin is the program of another role"},
        {"echo >programs/0.bin", "/programs/0.bin: "},
        {"echo >ranks.bin", "/ranks.bin: "},
        {"echo >transition.json; echo 0 transition.json >>MANIFEST", " is a transition between plans, and no plan"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct place p;
        struct plan *back;
        open_place(&p);
        CU_ASSERT_EQUAL_FATAL(write_plan(&p, false), STATUS_OK);
        CU_ASSERT_EQUAL(system(arena_printf(p.a, "cd %s && { %s; } && " PLAN_HASH_ANEW, p.dir, cases[i].command)), 0);
        CU_ASSERT_EQUAL(read_plan(&p, &back), STATUS_INPUT);
        CU_ASSERT_PTR_NOT_NULL(strstr(p.error.text, arena_printf(p.a, "%s%s", p.dir, cases[i].says)));
        plan_close(back);
        close_place(&p);
    }
}

/* names that no folder has */
static void test_names(void)
{
    struct arena *a = arena_new();
    struct error error = {""};
    struct plan *back;
    CU_ASSERT_EQUAL(plan_read(a, "", &back, &error), STATUS_INPUT);
    CU_ASSERT_STRING_EQUAL(error.text, "the folder's name is empty");
    CU_ASSERT_EQUAL(plan_read(a, arena_printf(a, "%05000d", 0), &back, &error), STATUS_INPUT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "0...: the path is too long"));
    arena_free(a);
}

/* files longer than any plan's, of holes: refused before they are read; the longest there may be is read, and its holes are seen */
static void test_long(void)
{
    static const struct {
        const char *name, *message;
        off_t mebibytes;
    } cases[] = {
        {"MANIFEST", "/MANIFEST: larger than 16 MiB", 16},
        {"plan.json", "/plan.json: larger than 256 MiB", 256},
        {"programs/0.bin", "/programs/0.bin: larger than 4096 MiB", 4096},
        {"MANIFEST", "/MANIFEST: holds a byte that no text has", 16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        off_t over = strstr(cases[i].message, "larger than") != NULL;
        struct place p;
        struct plan *back;
        open_place(&p);
        CU_ASSERT_EQUAL_FATAL(write_plan(&p, false), STATUS_OK);
        CU_ASSERT_EQUAL(truncate(path_of(&p, cases[i].name), (cases[i].mebibytes << 20) + over), 0);
        enum status s = read_plan(&p, &back);
        CU_ASSERT_EQUAL(strstr(p.error.text, "larger than") != NULL, over);
        CU_ASSERT_EQUAL(s, STATUS_INPUT);
        CU_ASSERT_STRING_EQUAL(p.error.text, arena_printf(p.a, "%s%s", p.dir, cases[i].message));
        plan_close(back);
        close_place(&p);
    }
}

/* the least number that no open file has */
static int next_file(void)
{
    int file = open("/dev/null", O_RDONLY);
    close(file);
    return file;
}

/* a disk that has no more room: said, with the file's name, and nothing is left behind, on it or open */
static void test_full(void)
{
    struct place p;
    struct rlimit was, little = {4096, 4096};
    open_place(&p);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_FSIZE, &was), 0);
    little.rlim_max = was.rlim_max;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &little);
    int next = next_file();
    enum status s = write_plan(&p, false);
    CU_ASSERT_EQUAL(next_file(), next);
    setrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, before);
    CU_ASSERT_EQUAL(s, STATUS_WORLD);
    CU_ASSERT_PTR_NOT_NULL(strstr(p.error.text, arena_printf(p.a, "%s: ", p.dir)));
    CU_ASSERT_PTR_NOT_NULL(strstr(p.error.text, "File too large"));
    CU_ASSERT_EQUAL(system(arena_printf(p.a, "test -z \"$(ls -A '%s')\"", p.root)), 0);
    close_place(&p);
}

/* what already stands at the target */
static void test_targets(void)
{
    static const struct {
        const char *file; /* in the folder, NULL = the folder is empty */
        bool force;
        enum status status;
        bool kept; /* the file survives, in place or beside */
    } cases[] = {
        {NULL, false, STATUS_OK, false},       {"notes.txt", false, STATUS_WORLD, true},
        {"MANIFEST", false, STATUS_OK, false}, {"model.llm", false, STATUS_WORLD, true},
        {"notes.txt", true, STATUS_OK, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct place p;
        open_place(&p);
        CU_ASSERT_EQUAL_FATAL(mkdir(p.dir, 0777), 0);
        if (cases[i].file)
            put(path_of(&p, cases[i].file), "w", "mine\n");
        CU_ASSERT_EQUAL(write_plan(&p, cases[i].force), cases[i].status);
        char *command = arena_printf(p.a, "grep -rqx mine '%s'", p.root);
        CU_ASSERT_EQUAL(system(command) == 0, cases[i].kept);
        command = arena_printf(p.a, "ls -d '%s'/*.tmp-* 2>/dev/null >&2", p.root);
        CU_ASSERT(system(command) != 0);
        close_place(&p);
    }
}

/* a plan is replaced as a whole; a plan folder in which somebody keeps a log is not */
static void test_replace(void)
{
    struct place p;
    open_place(&p);
    CU_ASSERT_EQUAL(write_plan(&p, false), STATUS_OK);
    put(path_of(&p, "MANIFEST"), "w", "");
    CU_ASSERT_EQUAL(write_plan(&p, false), STATUS_OK);
    struct plan *back;
    CU_ASSERT_EQUAL(read_plan(&p, &back), STATUS_OK);
    plan_close(back);
    char *command = arena_printf(p.a, "test \"$(ls '%s')\" = plan", p.root);
    CU_ASSERT_EQUAL(system(command), 0);
    put(path_of(&p, "run.jsonl"), "w", "{}\n");
    CU_ASSERT_EQUAL(write_plan(&p, false), STATUS_WORLD);
    CU_ASSERT_PTR_NOT_NULL(strstr(p.error.text, "holds more than a plan"));
    CU_ASSERT_EQUAL(access(path_of(&p, "run.jsonl"), R_OK), 0);
    close_place(&p);
}

/* Where the folder's parent takes no files: said before anything is computed.  Root may write everywhere, so
 * somebody else asks. */
static void test_closed(void)
{
    enum { NOBODY = 65534 };
    char root[] = "/tmp/llmc-test-XXXXXX";
    struct error error = {""};
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(root));
    CU_ASSERT_EQUAL(chmod(root, 0555), 0);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        bool gone = chdir(root) || (!getuid() && setresuid(NOBODY, NOBODY, NOBODY));
        enum status s = gone ? STATUS_OK : plan_may_write("plan", true, &error);
        _exit(s == STATUS_WORLD && strstr(error.text, "nothing can be written into .: Permission denied") ? 0 : 1);
    }
    int how = -1;
    CU_ASSERT_EQUAL(waitpid(child, &how, 0), child);
    CU_ASSERT(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    CU_ASSERT_EQUAL(rmdir(root), 0);
}

/* somebody else's folder, where the plan's would be */
static void make_theirs(int number)
{
    (void)number;
    if (mkdir("plan", 0777) || mkdir("plan/theirs", 0777))
        _exit(2);
}

/* A folder that appears while the plan is written: the system tells this process of the first file beside it,
 * and that instant somebody makes the plan's folder.  It stays as it is, and nothing of the plan is left. */
static void test_meanwhile(void)
{
    struct place p;
    open_place(&p);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        struct sigaction act = {.sa_handler = make_theirs, .sa_flags = SA_RESTART};
        int here = chdir(p.root) ? -1 : open(".", O_RDONLY | O_DIRECTORY);
        sigaction(SIGIO, &act, NULL);
        if (here < 0 || fcntl(here, F_NOTIFY, DN_CREATE))
            _exit(77);
        enum status s = plan_write(p.plan, "plan", false, &p.error);
        bool said = !strcmp(p.error.text, arena_printf(p.a, "plan: %s", strerror(ENOTEMPTY))) ||
                    !strcmp(p.error.text, arena_printf(p.a, "plan: %s", strerror(EEXIST)));
        _exit(s == STATUS_WORLD && said ? 0 : 1);
    }
    int how = -1;
    CU_ASSERT_EQUAL(waitpid(child, &how, 0), child);
    if (WIFEXITED(how) && WEXITSTATUS(how) == 77) {
        test_skip("this system does not tell of new files (fcntl F_NOTIFY)");
    } else {
        CU_ASSERT(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        CU_ASSERT_EQUAL(system(arena_printf(p.a, "test \"$(ls -A '%s')\" = plan", p.root)), 0);
        CU_ASSERT_EQUAL(system(arena_printf(p.a, "test \"$(ls -A '%s')\" = theirs", p.dir)), 0);
    }
    close_place(&p);
}

void suite_plan_files(void)
{
    CU_pSuite s = CU_add_suite("plan_files", NULL, NULL);
    CU_add_test(s, "imported files travel with the plan", test_imports);
    CU_add_test(s, "a changed or missing file is refused by name", test_changed);
    CU_add_test(s, "files that are whole and wrong", test_forged);
    CU_add_test(s, "names that no folder has", test_names);
    CU_add_test(s, "files that are too long", test_long);
    CU_add_test(s, "a full disk", test_full);
    CU_add_test(s, "folders of others", test_targets);
    CU_add_test(s, "a plan replaces a plan", test_replace);
    CU_add_test(s, "a parent that takes no files", test_closed);
    CU_add_test(s, "a folder that appears meanwhile", test_meanwhile);
}
