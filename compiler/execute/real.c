/* Real kernels: the plan in its own folder, or written to a temporary one like the single rank's, is trained by the
 * llmrun in the directory of this program, one process per rank; the logs are compared as the tests do.
 *
 * In 16 and 8 bits layouts round in different places, so the bounds are those of rounding.  In later steps only
 * losses are bounded, because where the loss is steep a small difference in parameters gives another gradient. */

#include "compiler/execute/execute.h"

#include "compiler/execute/field.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 3, ROOM = 400 };

struct figures {
    uint32_t steps;
    double loss[STEPS], norm[STEPS];
};

static enum status world(struct error *error, const char *what)
{
    return error_set(error, STATUS_WORLD, "%s: %s", what, strerror(errno));
}

/* Finds llmrun in the directory of this program. */
static bool find_llmrun(char path[ROOM + 16])
{
    char own[ROOM];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    if (n <= 0)
        return false;
    own[n] = 0;
    char *slash = strrchr(own, '/');
    if (!slash)
        return false;
    *slash = 0;
    snprintf(path, ROOM + 16, "%s/llmrun", own);
    return access(path, X_OK) == 0;
}

static enum status write_tokens(const char *path, const struct job *job, struct error *error)
{
    FILE *f = fopen(path, "wb");
    uint64_t n = (uint64_t)STEPS * job->train.batch * job->train.sequence + 1;
    if (!f)
        return world(error, path);
    for (uint64_t i = 0; i < n; i++) {
        uint16_t token = (uint16_t)(field_bits(i, 1, 0) % job->model.vocab);
        fwrite(&token, sizeof token, 1, f);
    }
    return ferror(f) | fclose(f) ? world(error, path) : STATUS_OK;
}

static void read_log(const char *path, struct figures *out)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    *out = (struct figures){0};
    while (f && out->steps < STEPS && fgets(line, sizeof line, f)) {
        const char *loss = strstr(line, "\"loss\": "), *norm = strstr(line, "\"grad_norm\": ");
        if (!loss || !norm)
            continue;
        out->loss[out->steps] = strtod(loss + strlen("\"loss\": "), NULL);
        out->norm[out->steps++] = strtod(norm + strlen("\"grad_norm\": "), NULL);
    }
    if (f)
        fclose(f);
}

/* Returns the exit status of llmrun, whose output goes to a file; option: NULL, or what to do with the choices of
 * experts in `routing`. */
static int spawn(const char *llmrun, const char *plan, const char *data, const char *log, const char *said,
                 const char *option, const char *routing)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char steps[16];
        int fd = open(said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        snprintf(steps, sizeof steps, "%d", STEPS);
        if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
            _exit(127);
        execl(llmrun, llmrun, plan, "--data", data, "--steps", steps, "--log", log, "--quiet", option, routing,
              (char *)NULL);
        _exit(127);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Trains a plan from its own folder or from a copy; returns NULL, or why it did not train (in the arena).  Tokens go
 * to the experts that the first run has chosen: where two are nearly equal, rounding decides, and layouts round
 * differently. */
static const char *train(struct arena *a, const struct plan *p, const char *dir, const char *llmrun, const char *folder,
                         const char *name, bool first, struct figures *out)
{
    char data[ROOM], log[ROOM], said[ROOM], routing[ROOM], text[400] = "";
    struct error error;
    const char *plan = dir ? dir : arena_printf(a, "%s/%s", folder, name);
    const char *option = !model_has_experts(&p->job->model) ? NULL : first ? "--routing-save" : "--routing";
    snprintf(data, sizeof data, "%s/tokens", folder);
    snprintf(log, sizeof log, "%s/%s.log", folder, name);
    snprintf(said, sizeof said, "%s/%s.said", folder, name);
    snprintf(routing, sizeof routing, "%s/routing", folder);
    if (!dir && plan_write(p, plan, true, &error) != STATUS_OK)
        return arena_strdup(a, error.text);
    int code = spawn(llmrun, plan, data, log, said, option, routing);
    read_log(log, out);
    if (code == 0 && out->steps == STEPS)
        return NULL;
    FILE *f = fopen(said, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    text[strcspn(text, "\n")] = 0;
    return arena_printf(a, "llmrun ended with code %d on the plan of %u ranks: %s", code, p->ranks->nranks, text);
}

static double relative(double x, double y)
{
    return isfinite(x) && isfinite(y) ? fabs(x - y) / fmax(fabs(y), 1e-30) : INFINITY;
}

static void compare(struct arena *a, const struct job *job, const struct figures *x, const struct figures *y,
                    struct execution *e)
{
    bool exact = job->train.precision == DT_FP32;
    double loss_bound = exact ? 1e-5 : 1e-2;
    for (uint32_t i = 0; i < STEPS; i++) {
        double loss = relative(x->loss[i], y->loss[i]), norm = relative(x->norm[i], y->norm[i]);
        double norm_bound = exact ? (i ? 1e-3 : 1e-5) : i ? INFINITY : job->train.precision == DT_FP8 ? 3e-1 : 1e-1;
        e->loss_error = loss > e->loss_error ? loss : e->loss_error;
        e->norm_error = norm > e->norm_error ? norm : e->norm_error;
        if (!e->real && !(loss <= loss_bound && norm <= norm_bound))
            e->real = arena_printf(a, "step %u: loss %.9g, one rank %.9g; gradient norm %.9g, one rank %.9g", i + 1,
                                   x->loss[i], y->loss[i], x->norm[i], y->norm[i]);
    }
    e->steps = STEPS;
}

static void remove_folder(const char *folder)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

enum status execute_real(struct arena *a, const char *dir, const struct plan *p, const struct plan *one,
                         struct execution *e, struct error *error)
{
    char llmrun[ROOM + 16], folder[300], data[ROOM];
    const char *tmp = getenv("TMPDIR");
    struct figures many, single;
    if (!find_llmrun(llmrun))
        return error_set(error, STATUS_WORLD,
                         "llmrun is not in the folder of this program: real kernels cannot be run");
    snprintf(folder, sizeof folder, "%.200s/llmc-execute-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder))
        return world(error, folder);
    snprintf(data, sizeof data, "%s/tokens", folder);
    enum status st = write_tokens(data, p->job, error);
    if (st == STATUS_OK) {
        e->real = train(a, one, NULL, llmrun, folder, "one", true, &single);
        if (!e->real)
            e->real = train(a, p, dir, llmrun, folder, "many", false, &many);
        if (!e->real)
            compare(a, p->job, &many, &single, e);
    }
    remove_folder(folder);
    return st;
}
