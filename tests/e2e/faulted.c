/* Runs with faults.  Processes are started without a shell, since there are many of them. */

#include "tests/e2e/faulted.h"
#include "runtime/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORDS = 32, MOST_MS = 60000 };

static const char model[] =
    "llmc 1\n"
    "model small {\n    vocab 256\n    width 8\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 2 { layer { attn gqa(heads=2, kv=2, rope=10_000); ffn swiglu(8) } }\n    head untied\n}\n"
    "train {\n    sequence 8\n    batch 4 sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n}\n"
    "plan {\n    microbatch = 1 sequence\n    recompute none\n    schedule 1f1b\n}\n";

/* ---- folders ---- */

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

void faulted_remove(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void faulted_clear(const struct faulted *t)
{
    char path[E2E_PATH + 16];
    snprintf(path, sizeof path, "%s/job", t->dir);
    faulted_remove(path);
    mkdir(path, 0777);
}

uint32_t faulted_generations(const struct faulted *t, uint64_t steps[FAULTED_MOST], uint32_t *other)
{
    char path[E2E_PATH + 16];
    bool there[FAULTED_MOST] = {false};
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/job/ck", t->dir);
    DIR *d = opendir(path);
    *other = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        unsigned long long step = 0;
        int end = 0;
        if (e->d_name[0] == '.' || !strncmp(e->d_name, "failure-", 8))
            continue;
        if (sscanf(e->d_name, "step-%llu%n", &step, &end) == 1 && !e->d_name[end] && step < FAULTED_MOST)
            there[step] = true;
        else
            ++*other;
    }
    if (d)
        closedir(d);
    for (uint64_t step = 0; step < FAULTED_MOST; step++)
        if (there[step])
            steps[n++] = step;
    return n;
}

static bool same_bytes(const char *a, const char *b)
{
    static char x[1 << 16], y[1 << 16];
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    bool same = f && g;
    for (size_t n = 1, m; same && n;) {
        n = fread(x, 1, sizeof x, f);
        m = fread(y, 1, sizeof y, g);
        same = n == m && !memcmp(x, y, n);
    }
    if (f)
        fclose(f);
    if (g)
        fclose(g);
    return same;
}

bool faulted_same(const struct faulted *t, uint64_t step)
{
    static const char *const files[] = {"model", "moment1/model", "moment2/model"};
    char a[2 * E2E_PATH], b[2 * E2E_PATH];
    bool same = true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(a, sizeof a, "%s/job/ck/step-%d/%s.safetensors", t->dir, (int)step, files[i]);
        snprintf(b, sizeof b, "%s/whole/step-%d/%s.safetensors", t->dir, (int)step, files[i]);
        same &= same_bytes(a, b);
    }
    return same;
}

int faulted_hush(void)
{
    int kept = dup(STDERR_FILENO), nowhere = open("/dev/null", O_WRONLY);
    fflush(stderr);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
    return kept;
}

void faulted_speak(int fd)
{
    fflush(stderr);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

uint64_t faulted_find(const char *folder)
{
    struct checkpoint c;
    struct error error = {""};
    char path[CHECKPOINT_PATH];
    bool found;
    int kept = faulted_hush();
    enum status st = checkpoint_find(folder, &c, path, &found, &error);
    faulted_speak(kept);
    return st == STATUS_OK && found ? c.step : 0;
}

/* ---- runs ---- */

static void set(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void set(const char *name, const char *format, ...)
{
    char value[2 * E2E_PATH];
    va_list ap;
    va_start(ap, format);
    vsnprintf(value, sizeof value, format, ap);
    va_end(ap);
    setenv(name, value, 1);
}

/* the process that becomes llmrun */
static void become(const struct faulted *t, const struct fault *f, bool list, char **words)
{
    char path[E2E_PATH + 16];
    snprintf(path, sizeof path, "%s/err", t->dir);
    int err = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666), nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, STDIN_FILENO);
    dup2(nowhere, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    if ((f && f->at) || list) {
        set("LD_PRELOAD", "%s/tests/preload/faults.so", e2e_build());
        set("ASAN_OPTIONS", "verify_asan_link_order=0");
        set("FAULTS_BELOW", "%s/job", t->dir);
        set("FAULTS_MARK", "%s/mark", t->dir);
    }
    if (f && f->at) {
        set("FAULTS_RANK", "%d", f->rank);
        set("FAULTS_AT", "%u", f->at);
        set("FAULTS_KIND", "%d", f->kind);
        set("FAULTS_ON", "%d", f->on);
    }
    if (list)
        set("FAULTS_LIST", "%s/list", t->dir);
    execv(words[0], words);
    _exit(127);
}

static int wait_for(pid_t pid, uint32_t after_us)
{
    int status;
    if (after_us) {
        nanosleep(&(struct timespec){.tv_nsec = 1000 * (long)after_us}, NULL);
        kill(pid, SIGKILL);
    }
    for (int ms = 0; ms < MOST_MS; ms += ms < 100 ? 1 : 10) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        nanosleep(&(struct timespec){.tv_nsec = ms < 100 ? 1000000 : 10000000}, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

/* job: the folder's name */
static void run(struct faulted *t, const struct fault *f, bool list, const char *folder, const char *options)
{
    char text[4 * E2E_PATH], mark[E2E_PATH + 16], *words[MOST_WORDS], *rest = NULL;
    snprintf(text, sizeof text, "%s/llmrun %s/plan --data %s/tokens --checkpoint %s/%s %s", e2e_build(), t->dir, t->dir,
             t->dir, folder, options);
    int n = 0;
    for (char *word = strtok_r(text, " ", &rest); word && n + 1 < MOST_WORDS; word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    words[n] = NULL;
    snprintf(mark, sizeof mark, "%s/mark", t->dir);
    unlink(mark);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        become(t, f, list, words);
    t->code = pid < 0 ? -1 : wait_for(pid, f ? f->after_us : 0);
    t->reached = access(mark, F_OK) == 0;
    snprintf(mark, sizeof mark, "%s/err", t->dir);
    e2e_read_text(mark, t->err, sizeof t->err);
}

void faulted_run(struct faulted *t, const struct fault *f, bool list, const char *options)
{
    run(t, f, list, "job/ck", options);
}

static bool make_place(struct faulted *t, const char *name)
{
    char folder[E2E_PATH], path[E2E_PATH];
    snprintf(t->dir, sizeof t->dir, "/dev/shm/llmc-test-%d-%s", (int)getpid(), name);
    if (!mkdir(t->dir, 0700))
        return true;
    e2e_folder(folder, name);
    if (!realpath(folder, path))
        return false;
    snprintf(t->dir, sizeof t->dir, "%s", path);
    return true;
}

struct faulted *faulted_open(const char *name, const char *words)
{
    struct faulted *t = calloc(1, sizeof *t);
    char path[E2E_PATH + 16], options[64];
    bool fine = t && make_place(t, name);
    if (!fine)
        return NULL;
    snprintf(path, sizeof path, "%s/m.llm", t->dir);
    FILE *out = fopen(path, "w");
    fine = out && fputs(model, out) >= 0;
    fine = out && fclose(out) == 0 && fine;
    snprintf(path, sizeof path, "%s/log", t->dir);
    fine = fine && !e2e_command(path, "%s/llmc tokens LICENSE -q -o %s/tokens", e2e_build(), t->dir) &&
           !e2e_command(path, "%s/llmc plan %s/m.llm topologies/cpu8.xml -q -o %s/plan %s", e2e_build(), t->dir, t->dir, words);
    snprintf(options, sizeof options, "--steps %d --every 1 --keep 0 --quiet", FAULTED_STEPS);
    if (fine)
        run(t, NULL, false, "whole", options);
    if (fine && t->code)
        printf("\n    the undisturbed run: exit %d: %s", t->code, t->err);
    if (fine && !t->code)
        return t;
    faulted_close(t);
    return NULL;
}

void faulted_close(struct faulted *t)
{
    faulted_remove(t->dir);
    free(t);
}
