/* The thread that draws.  The cursor always stands below what is drawn, so that what a terminal shows can be read
 * whenever the process ends; to draw anew it goes up as many lines.  Sentences that rank 0 has for people are put
 * above. All memory is taken before the thread begins: what ranks allocate after their first step is counted. */

#include "runtime/watch.h"
#include "runtime/file.h"
#include "runtime/told.h"
#include "runtime/watch_view.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const int64_t LOOK_NS = 50000000, DRAW_NS = 200000000, LINE_NS = 1000000000, MEMORY_NS = 1000000000;

struct watch {
    const struct world *world;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    bool over; /* under the lock */
    bool terminal, colour;
    uint32_t drawn; /* lines above the cursor that are the view */
    uint64_t shown; /* the step that was drawn last; 0: none */
    int64_t shown_ns, measured_ns;
    struct view view;
    struct view_lines lines;
    size_t n;
    char out[2 * sizeof(struct view_lines)];
};

/* ---- output ---- */

static void put(struct watch *w, const char *text)
{
    size_t n = strlen(text);
    if (n > sizeof w->out - w->n)
        return;
    memcpy(w->out + w->n, text, n);
    w->n += n;
}

/* a terminal that takes nothing holds up this thread alone */
static void flush(struct watch *w)
{
    for (size_t at = 0; at < w->n;) {
        ssize_t n = write(2, w->out + at, w->n - at);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    w->n = 0;
}

/* the cursor goes to where the view began, and what is below it is gone */
static void put_erase(struct watch *w)
{
    char up[32];
    if (w->drawn) {
        snprintf(up, sizeof up, "\r\033[%uA\033[J", w->drawn);
        put(w, up);
    }
    w->drawn = 0;
}

static void terminal_size(uint32_t *width, uint32_t *rows)
{
    struct winsize size;
    bool known = ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    *width = known ? size.ws_col : 80;
    *rows = known ? size.ws_row : 24;
}

static void draw(struct watch *w)
{
    uint32_t width, rows;
    terminal_size(&width, &rows);
    view_draw(&w->view, width > 1 ? width - 1 : 1, rows > 1 ? rows - 1 : 1, &w->lines);
    put_erase(w);
    for (uint32_t i = 0; i < w->lines.n; i++) {
        bool strong = w->colour && w->lines.strong[i];
        put(w, strong ? "\033[1;33m" : "");
        put(w, w->lines.text[i]);
        put(w, strong ? "\033[0m\n" : "\n");
    }
    w->drawn = w->lines.n;
}

/* ---- what there is to show ---- */

/* resident pages of a process of this host */
static uint64_t resident_bytes(int32_t pid)
{
    char path[64], text[128] = "";
    unsigned long long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    int fd;
    if (file_open(path, &fd, NULL))
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    return n > 0 && sscanf(text, "%*u %llu", &pages) == 1 ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static void measure(struct watch *w)
{
    w->view.resident_bytes = 0;
    for (uint32_t r = 0; r < w->world->nranks; r++) {
        int32_t pid = atomic_load(&w->world->ranks[r].pid);
        uint64_t bytes = pid ? resident_bytes(pid) : 0;
        if (bytes <= w->view.resident_bytes)
            continue;
        w->view.resident_bytes = bytes;
        w->view.arena_bytes = w->world->arena_size[r];
        w->view.fullest = r;
    }
}

static void show(struct watch *w, int64_t now)
{
    for (uint32_t r = 0; r < w->world->nranks; r++)
        w->view.waited[r] = waits_read(&w->world->ranks[r]);
    if (now - w->measured_ns > MEMORY_NS) {
        measure(w);
        w->measured_ns = now;
    }
    if (w->terminal) {
        draw(w);
    } else {
        view_short(&w->view, w->lines.text[0]);
        put(w, w->lines.text[0]);
        put(w, "\n");
    }
    w->shown = w->view.step.step;
    w->shown_ns = now;
}

static void look(struct watch *w, bool last)
{
    char line[TOLD_LINE];
    int64_t now = world_now_ns(), every = w->terminal ? DRAW_NS : LINE_NS;
    bool erased = false;
    while (told_hear(w->world, line)) {
        put_erase(w);
        put(w, line);
        put(w, "\n");
        erased = true;
    }
    if (world_failed(w->world) != STATUS_OK && !last) { /* others may be writing by now */
        flush(w);
        return;
    }
    bool told = told_read(w->world, &w->view.step), new = told && w->view.step.step != w->shown;
    if (told && ((new && (last || !w->shown || now - w->shown_ns >= every)) || (w->terminal && erased)))
        show(w, now);
    flush(w);
}

static void *watch(void *context)
{
    struct watch *w = context;
    pthread_mutex_lock(&w->lock);
    while (!w->over) {
        pthread_mutex_unlock(&w->lock);
        look(w, false);
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        int64_t end = (int64_t)t.tv_nsec + LOOK_NS;
        t.tv_sec += end / 1000000000;
        t.tv_nsec = end % 1000000000;
        pthread_mutex_lock(&w->lock);
        if (!w->over)
            pthread_cond_timedwait(&w->ends, &w->lock, &t);
    }
    pthread_mutex_unlock(&w->lock);
    look(w, true);
    return NULL;
}

/* ---- */

static void close_watch(struct watch *w)
{
    planned_free(&w->view.planned);
    free(w->view.waited);
    free(w->view.scratch);
    free(w);
}

/* signals are for the thread that trains */
static bool start_thread(struct watch *w)
{
    sigset_t all, before;
    pthread_condattr_t clock;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->ends, &clock);
    pthread_condattr_destroy(&clock);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&w->thread, NULL, watch, w) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

enum status watch_start(struct watch **out, const struct world *world, const struct folder *f, uint64_t steps)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    struct watch *w = calloc(1, sizeof *w);
    if (!w)
        return STATUS_WORLD;
    w->world = world;
    w->terminal = isatty(2) && !(term && !strcmp(term, "dumb"));
    w->colour = w->terminal && !(no_colour && *no_colour);
    w->measured_ns = world_now_ns() - 2 * MEMORY_NS;
    w->view.steps = steps;
    w->view.ranks = f->ranks;
    w->view.hosts = world->hosts;
    planned_read(&w->view.planned, f->json, f->ranks->nroles);
    w->view.waited = calloc(world->nranks, sizeof *w->view.waited);
    w->view.scratch = calloc(world->nranks, sizeof *w->view.scratch);
    if (!w->view.waited || !w->view.scratch || !start_thread(w)) {
        close_watch(w);
        return STATUS_WORLD;
    }
    *out = w;
    return STATUS_OK;
}

void watch_stop(struct watch *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->over = true;
    pthread_cond_signal(&w->ends);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->ends);
    close_watch(w);
}
