/* Disks that are full, read-only or limited, for a while or for the whole run: it goes on, says what it could not write,
 * ends with the right code, and the next save is whole.  The small disks are tmpfs, mounted where only this process and
 * its children see them. */

#include "runtime/checkpoint.h"
#include "tests/e2e/faulted.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH = E2E_PATH + 64, SMALL = 1 << 20 };
static const char plan[] = "--set gpus=2 --set pp=2";

/* job/ becomes a disk of SMALL bytes */
static bool mount_small(const struct faulted *t)
{
    char path[PATH], size[32];
    faulted_clear(t);
    snprintf(path, sizeof path, "%s/job", t->dir);
    snprintf(size, sizeof size, "size=%d", SMALL);
    bool fine = !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
                !mount("tmpfs", path, "tmpfs", 0, size);
    if (!fine)
        test_skip("no file system can be mounted here");
    return fine;
}

static void unmount(const struct faulted *t)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/job", t->dir);
    CU_ASSERT_EQUAL(umount(path), 0);
}

static void fill(const struct faulted *t, size_t left)
{
    static const char zeros[4096];
    char path[PATH];
    snprintf(path, sizeof path, "%s/job/filler", t->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    while (fd >= 0 && write(fd, zeros, sizeof zeros) > 0) {
    }
    struct stat about;
    CU_ASSERT_FATAL(fd >= 0 && !fstat(fd, &about) && !ftruncate(fd, about.st_size - (off_t)left));
    close(fd);
}

static void free_space(const struct faulted *t)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/job/filler", t->dir);
    unlink(path);
}

static uint32_t count(const char *text, const char *what)
{
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void show(const struct faulted *t, bool fine)
{
    CU_ASSERT(fine);
    if (!fine)
        printf("\n    exit %d: %s", t->code, t->err);
}

/* a run that writes nothing, and then one that does */
static void check_none(struct faulted *t, const char *why, bool log)
{
    uint64_t steps[FAULTED_MOST];
    uint32_t other;
    char options[2 * E2E_PATH];
    snprintf(options, sizeof options, "--steps %d --every 1 --quiet %s%s%s", FAULTED_STEPS, log ? "--log " : "",
             log ? t->dir : "", log ? "/job/log" : "");
    faulted_run(t, NULL, false, options);
    show(t, t->code == 4 && count(t->err, "was not written: ") == FAULTED_STEPS && count(t->err, why) >= FAULTED_STEPS &&
                strstr(t->err, "llmrun: the last checkpoint, of step 4, is missing\n") &&
                (!log || strstr(t->err, "goes on without its log")));
    CU_ASSERT_EQUAL(faulted_generations(t, steps, &other), 0);
    CU_ASSERT_EQUAL(other, 0);
}

static void check_next(struct faulted *t)
{
    uint64_t steps[FAULTED_MOST];
    uint32_t other;
    char options[64];
    snprintf(options, sizeof options, "--steps %d --every 1 --quiet --resume", FAULTED_STEPS);
    faulted_run(t, NULL, false, options);
    show(t, t->code == 0 && !*t->err && faulted_same(t, FAULTED_STEPS));
    CU_ASSERT_EQUAL(faulted_generations(t, steps, &other), 3);
    CU_ASSERT_EQUAL(other, 0);
}

static void test_full(void)
{
    struct faulted *t = faulted_open("full", plan);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    static const size_t left[] = {0, 4096, 20480, 65536}; /* nothing, a folder, a file, two */
    for (size_t i = 0; i < sizeof left / sizeof *left && mount_small(t); i++) {
        fill(t, left[i]);
        check_none(t, "No space left on device", left[i] == 0);
        free_space(t);
        check_next(t);
        unmount(t);
    }
    faulted_close(t);
}

/* frees the space once a run has said that it has none */
static pid_t watch(const struct faulted *t)
{
    char path[PATH], text[1 << 13];
    pid_t pid = fork();
    if (pid)
        return pid;
    snprintf(path, sizeof path, "%s/err", t->dir);
    for (int ms = 0; ms < 30000; ms++) {
        e2e_read_text(path, text, sizeof text);
        if (count(text, "was not written: ") >= 3)
            break;
        usleep(1000);
    }
    free_space(t);
    _exit(0);
}

static void test_full_for_a_while(void)
{
    struct faulted *t = faulted_open("while", plan);
    char ck[PATH];
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    if (mount_small(t)) {
        fill(t, 8192);
        snprintf(ck, sizeof ck, "%s/err", t->dir);
        unlink(ck); /* the undisturbed run's */
        pid_t watcher = watch(t);
        faulted_run(t, NULL, false, "--steps 2000 --every 1 --keep 2 --quiet");
        waitpid(watcher, NULL, 0);
        snprintf(ck, sizeof ck, "%s/job/ck", t->dir);
        show(t, t->code == 0 && count(t->err, "was not written: ") >= 3 && faulted_find(ck) == 2000);
        unmount(t);
    }
    faulted_close(t);
}

static void test_read_only(void)
{
    struct faulted *t = faulted_open("read-only", plan);
    char path[PATH], said[3 * PATH];
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    if (mount_small(t)) {
        snprintf(path, sizeof path, "%s/job", t->dir);
        CU_ASSERT_EQUAL_FATAL(mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
        faulted_run(t, NULL, false, "--steps 4 --every 1 --quiet");
        snprintf(said, sizeof said, "llmrun: cannot make folder %s/ck: Read-only file system\n", path);
        show(t, t->code == 4 && !strcmp(t->err, said));
        CU_ASSERT_EQUAL_FATAL(mount(NULL, path, NULL, MS_REMOUNT, NULL), 0);
        check_next(t);
        CU_ASSERT_EQUAL_FATAL(mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
        faulted_run(t, NULL, false, "--steps 5 --every 1 --quiet --resume");
        snprintf(said, sizeof said, "llmrun: checkpoints cannot be written into %s/ck: Read-only file system\n", path);
        show(t, t->code == 4 && !strcmp(t->err, said));
        unmount(t);
    }
    faulted_close(t);
}

/* a limit of what a process may write into a file; what it says is in one that is shorter */
static void test_limit(void)
{
    struct faulted *t = faulted_open("limit", plan);
    struct rlimit before, limit;
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (rlim_t bytes = 4096; bytes <= 16384; bytes += 4096) {
        faulted_clear(t);
        limit = (struct rlimit){bytes, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        faulted_run(t, NULL, false, "--steps 4 --every 1 --quiet");
        setrlimit(RLIMIT_FSIZE, &before);
        show(t, t->code == 4 && count(t->err, "was not written: ") == FAULTED_STEPS &&
                    count(t->err, "File too large") >= FAULTED_STEPS &&
                    strstr(t->err, "llmrun: the last checkpoint, of step 4, is missing\n"));
        check_next(t);
    }
    faulted_close(t);
}

/* the only generation is damaged: nothing is trained, and the message names it */
static void test_only_one(void)
{
    struct faulted *t = faulted_open("only", plan);
    char path[PATH], said[3 * PATH];
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    faulted_clear(t);
    faulted_run(t, NULL, false, "--steps 1 --quiet");
    CU_ASSERT_EQUAL(t->code, 0);
    snprintf(path, sizeof path, "%s/job/ck/step-1/checkpoint.json", t->dir);
    CU_ASSERT_EQUAL(truncate(path, 100), 0);
    faulted_run(t, NULL, false, "--steps 2 --quiet --resume");
    snprintf(said, sizeof said, "step-1 is passed over: %s: damaged or not complete\nllmrun: %s/job/ck: none of its 1", path,
             t->dir);
    show(t, t->code == 3 && strstr(t->err, said));
    faulted_run(t, NULL, false, "--steps 2 --quiet");
    show(t, t->code == 2 && strstr(t->err, "has checkpoints up to step 1"));
    faulted_close(t);
}

/* Ranks that a launcher started look for checkpoints themselves: they must find the same step. */
static void test_two_folders(void)
{
    static const struct {
        const char *other, *said;
        int code;
    } cases[] = {{"job/ck", "", 0},
                 {"job/other", "another rank finds another", 5},
                 {"job/empty", "another rank finds another", 5}};
    struct faulted *t = faulted_open("two", plan);
    char path[PATH], script[PATH];
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    snprintf(path, sizeof path, "%s/script", t->dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        faulted_clear(t);
        FILE *f = fopen(path, "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        fprintf(f,
                "R=$PWD/%s/llmrun; cd %s; mkdir job/ck job/other job/empty; cp -r whole/step-1 whole/step-2 job/ck; "
                "cp -r whole/step-1 job/other\nexport WORLD_SIZE=2 MASTER_PORT=%d; "
                "run() { RANK=$1 timeout 400 $R plan --data tokens --steps 4 --quiet --resume --checkpoint $2 2>>err; }\n"
                ":>err; run 0 job/ck & run 1 %s; a=$?; wait $!; b=$?; exit $((a > b ? a : b))\n",
                e2e_build(), t->dir, (int)getpid(), cases[i].other);
        fclose(f);
        snprintf(script, sizeof script, "sh %s/script", t->dir);
        int status = system(script);
        snprintf(script, sizeof script, "%s/err", t->dir);
        e2e_read_text(script, t->err, sizeof t->err);
        t->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        show(t, t->code == cases[i].code && strstr(t->err, cases[i].said) && (t->code || faulted_same(t, FAULTED_STEPS)));
    }
    faulted_close(t);
}

void suite_checkpoint_disks(void);
void suite_checkpoint_disks(void)
{
    CU_pSuite s = CU_add_suite("checkpoint_disks", NULL, NULL);
    CU_add_test(s, "a full disk", test_full);
    CU_add_test(s, "a disk that is full for a while", test_full_for_a_while);
    CU_add_test(s, "a read-only disk", test_read_only);
    CU_add_test(s, "a limit of file size", test_limit);
    CU_add_test(s, "a damaged generation that is the only one", test_only_one);
    CU_add_test(s, "ranks that see different folders", test_two_folders);
}
