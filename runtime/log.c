/* Log lines.  A line is flushed when written: a killed run keeps what it had.  A line that cannot be written
 * is no reason to lose the training: it is said at once, the run goes on without its log, and fails at its
 * end. */

#include "runtime/log.h"
#include "runtime/file.h"
#include "runtime/told.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where the lines of a run's first steps end in a file that it wrote before: behind the last whole line of step `first`
 * or an earlier one. */
static off_t end_of(FILE *lines, uint64_t first)
{
    char *line = NULL;
    size_t room = 0;
    off_t end = 0;
    unsigned long long step;
    for (ssize_t n; (n = getline(&line, &room, lines)) > 0; end += n)
        if (line[n - 1] != '\n' || sscanf(line, "{\"step\": %llu", &step) != 1 || step > first)
            break;
    free(line);
    return end;
}

/* Opens the log of a resumed run, cut where the checkpoint was taken; a stream of NULL where there is none to go on
 * with. */
static const char *reopen(const char *path, uint64_t first, FILE **out)
{
    FILE *before;
    *out = NULL;
    if (file_not_file(path) || file_read(path, &before))
        return NULL;
    off_t end = end_of(before, first);
    fclose(before);
    return file_continue(path, (uint64_t)end, out);
}

enum status log_open(struct log *l, const char *path, uint64_t first, uint64_t steps, bool quiet,
                     const struct world *watched, struct error *error)
{
    bool lines = !quiet && !watched;
    *l = (struct log){
        .path = path, .steps = steps, .progress = lines && isatty(2), .plain = lines && !isatty(2), .watched = watched};
    if (!path)
        return STATUS_OK;
    const char *why = first ? reopen(path, first, &l->lines) : NULL;
    if (!l->lines && !why)
        why = file_append(path, &l->lines);
    return why ? error_set(error, STATUS_WORLD, "%s: %s", path, why) : STATUS_OK;
}

/* a line for people, whatever is there of other lines for them; `before`: what ends a line of progress */
static void tell(const struct log *l, const char *before, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void tell(const struct log *l, const char *before, const char *format, ...)
{
    char line[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (l->watched)
        told_say(l->watched, line);
    else
        fprintf(stderr, "%s%s\n", l->progress ? before : "", line);
}

static bool is_logged(const struct log *l)
{
    return l->lines && !l->broken;
}

static void end_line(struct log *l)
{
    if (fflush(l->lines) == 0 && !ferror(l->lines))
        return;
    l->broken = true;
    tell(l, "\n", "llmrun: %s: %s; the run goes on without its log", l->path, strerror(errno));
}

/* as JSON: null where it has none */
static void print_number(FILE *out, double x)
{
    char text[32];
    if (!isfinite(x)) {
        fputs("null", out);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) { /* the shortest form that reads back as x */
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, out);
}

static void field(FILE *out, const char *name, double x)
{
    fprintf(out, ", \"%s\": ", name);
    print_number(out, x);
}

void log_step(struct log *l, const struct log_step *s)
{
    if (is_logged(l)) {
        fprintf(l->lines, "{\"step\": %llu", (unsigned long long)s->step);
        field(l->lines, "loss", s->loss);
        field(l->lines, "grad_norm", s->grad_norm);
        field(l->lines, "lr", s->lr);
        fprintf(l->lines, ", \"tokens\": %llu", (unsigned long long)s->tokens);
        field(l->lines, "step_time_s", s->step_time_s);
        field(l->lines, "tokens_per_s", s->tokens_per_s);
        if (s->core_s > 0)
            field(l->lines, "core_s", s->core_s);
        if (s->loss_scale > 0) {
            field(l->lines, "loss_scale", s->loss_scale);
            fprintf(l->lines, ", \"skipped\": %s", s->skipped ? "true" : "false");
        }
        fputs("}\n", l->lines);
        end_line(l);
    }
    if (l->watched)
        told_step(l->watched, s);
    if (s->skipped && (l->progress || l->plain || l->watched))
        tell(l, "\r", "step %llu  skipped: gradients overflow at a loss scale of %.0f", (unsigned long long)s->step,
             s->loss_scale);
    int64_t now = world_now_ns();
    bool last = s->step == l->steps, due = s->step == 1 || last || now - l->last_ns > 100000000;
    if (l->progress && due)
        fprintf(stderr, "\rstep %llu/%llu  loss %.4f  grad %.3f  %.0f tokens/s   %s", (unsigned long long)s->step,
                (unsigned long long)l->steps, s->loss, s->grad_norm, s->tokens_per_s, last ? "\n" : "");
    else if (l->plain && (s->step == 1 || last || s->step % 100 == 0))
        fprintf(stderr, "step %llu/%llu  loss %.4f  grad %.3f  %.0f tokens/s\n", (unsigned long long)s->step,
                (unsigned long long)l->steps, s->loss, s->grad_norm, s->tokens_per_s);
    if (due)
        l->last_ns = now;
}

void log_eval(struct log *l, uint64_t step, double loss, uint64_t tokens)
{
    if (is_logged(l)) {
        fprintf(l->lines, "{\"step\": %llu", (unsigned long long)step);
        field(l->lines, "eval_loss", loss);
        fprintf(l->lines, ", \"eval_tokens\": %llu}\n", (unsigned long long)tokens);
        end_line(l);
    }
    if (l->progress || l->plain || l->watched)
        tell(l, "\r", "step %llu  held-out loss %.4f", (unsigned long long)step, loss);
}

void log_say(const struct log *l, const char *format, ...)
{
    char words[1024];
    va_list ap;
    va_start(ap, format);
    vsnprintf(words, sizeof words, format, ap);
    va_end(ap);
    tell(l, "\n", "llmrun: %s", words);
}

enum status log_close(struct log *l, struct error *error)
{
    if (!l->lines)
        return STATUS_OK;
    bool lost = l->broken;
    int cause = fclose(l->lines) ? errno : 0;
    l->lines = NULL;
    if (!lost && !cause)
        return STATUS_OK;
    return error_set(error, STATUS_WORLD, "%s: %s", l->path, lost ? "the log is not complete" : strerror(cause));
}
