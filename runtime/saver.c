/* One rank's checkpoints: when they are due, the copy, the thread, the files. */

#include "runtime/saver.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t FILE_BYTES = (uint64_t)4 << 30; /* of tensors, at most, in one file */

/* ---- what a plan's checkpoints contain ---- */

enum status saver_catalogs(const struct program *const *programs, uint32_t nroles, size_t base,
                           struct saver_catalogs *out, struct error *error)
{
    *out = (struct saver_catalogs){.base = base};
    for (int state = 0; state < NSTATES; state++) {
        TRY(weights_catalog(programs, nroles, (enum state)state, true, &out->list[state], &out->n[state], error));
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < out->n[state]; i++) {
            const struct weight_plan *t = &out->list[state][i];
            bytes += (t->ndim == 2 ? t->shape[0] : 1) * t->shape[1] * sizeof(float) + 256 /* of a header */;
        }
        /* a count of elements per tensor; hashes: every file ends with a block that is not full */
        out->nvalues += 2 * (uint64_t)out->n[state] + bytes / CHECKPOINT_BLOCK + 2;
    }
    return STATUS_OK;
}

void saver_catalogs_free(struct saver_catalogs *c)
{
    for (int state = 0; state < NSTATES; state++)
        free(c->list[state]);
}

/* ---- a rank's part ---- */

struct staged {
    struct weights_piece piece;
    struct view copy; /* its values, in the saver's own memory, row after row */
    enum state state;
};
struct saver {
    struct world *w;
    struct weights_place place;
    const struct saver_catalogs *catalogs;
    struct saver_rules rules;
    uint64_t last;
    struct staged *staged;
    uint32_t nstaged;
    uint8_t *memory;
    int64_t decided_ns; /* when rank 0 last decided for a save that goes by time */
    pthread_t thread;
    bool running;
    /* of the save that is being written */
    struct checkpoint now;
    struct weights_sink sink[NSTATES];
    bool failed;
    struct error error;
    struct saver_figures figures;
};

static bool is_first(const struct saver *s)
{
    return s->w->rank == 0;
}

static _Atomic uint64_t *shared_values(const struct saver *s)
{
    return (_Atomic uint64_t *)(void *)s->w->coverage + s->catalogs->base;
}

static enum status list_pieces(struct saver *s, size_t *bytes)
{
    *bytes = 0;
    for (int state = 0; state < NSTATES; state++) {
        struct weights_piece *pieces;
        uint32_t n;
        TRY(weights_pieces(&s->place, (enum state)state, false, &pieces, &n));
        struct staged *longer = realloc(s->staged, (s->nstaged + n + (size_t)1) * sizeof *longer);
        for (uint32_t i = 0; longer && i < n; i++) {
            longer[s->nstaged + i] = (struct staged){
                .piece = pieces[i], .copy = pieces[i].values, .state = (enum state)state};
            *bytes += (size_t)pieces[i].values.rows * pieces[i].values.cols * isa_dtype_bytes(pieces[i].values.dtype);
        }
        free(pieces);
        if (!longer)
            return STATUS_WORLD;
        s->staged = longer;
        s->nstaged += n;
    }
    return STATUS_OK;
}

/* Says whether the ranks take a checkpoint after `taken` steps.  No rank is more than one step ahead of another. */
static void announce(struct saver *s, uint64_t taken, bool due)
{
    atomic_store(&s->w->control->save_after[taken % SAVES_AHEAD], due ? taken : 0);
}

/* What is left of attempts that were cut off takes space that the next one may need. */
static void sweep(const struct saver *s)
{
    struct error left;
    if (checkpoint_sweep(s->rules.dir, &left) != STATUS_OK)
        fprintf(stderr, "llmrun: %s\n", left.text);
}

enum status saver_open(struct saver **out, struct world *w, const struct weights_place *place,
                       const struct saver_catalogs *c, const struct saver_rules *rules, uint64_t first, uint64_t last,
                       struct error *error)
{
    struct saver *s = calloc(1, sizeof *s);
    size_t bytes = 0;
    if (!s)
        return STATUS_WORLD;
    *out = s;
    s->w = w;
    s->place = *place;
    s->catalogs = c;
    s->rules = *rules;
    s->last = last;
    s->decided_ns = world_now_ns();
    TRY(list_pieces(s, &bytes));
    s->memory = malloc(bytes + 1);
    if (!s->memory)
        return error_set(error, STATUS_WORLD, "out of memory: a checkpoint's copy takes %zu bytes on rank %u", bytes,
                         w->rank);
    for (size_t i = 0, at = 0; i < s->nstaged; i++) {
        struct view *v = &s->staged[i].copy;
        v->data = s->memory + at;
        v->ld = v->cols;
        at += (size_t)v->rows * v->cols * isa_dtype_bytes(v->dtype);
    }
    if (is_first(s))
        sweep(s);
    /* the first step, before anybody could agree */
    announce(s, first + 1, rules->every_steps && (first + 1) % rules->every_steps == 0 && first + 1 < last);
    return STATUS_OK;
}

static void copy_values(struct saver *s)
{
    for (uint32_t i = 0; i < s->nstaged; i++) {
        const struct view *from = &s->staged[i].piece.values, *to = &s->staged[i].copy;
        size_t size = isa_dtype_bytes(from->dtype);
        for (uint32_t row = 0; row < from->rows; row++)
            memcpy((uint8_t *)to->data + (size_t)row * to->ld * size,
                   (const uint8_t *)from->data + (size_t)row * from->ld * size, from->cols * size);
    }
}

/* ---- agreeing ---- */

/* Does rank 0 want a checkpoint after `then` steps?  The end of the run has one of its own. */
static bool wants_save(struct saver *s, uint64_t then)
{
    bool due = s->rules.every_steps && then % s->rules.every_steps == 0;
    if (s->rules.every_s > 0 && (double)(world_now_ns() - s->decided_ns) * 1e-9 >= s->rules.every_s) {
        bool busy = atomic_load(&s->w->control->saving) != 0;
        s->decided_ns = world_now_ns();
        s->figures.left_out += busy;
        due |= !busy;
    }
    return due && then < s->last;
}

enum status saver_agree(struct saver *s, uint64_t taken)
{
    struct world_control *c = s->w->control;
    uint64_t then = taken + 2;
    uint64_t told[2] = {is_first(s) && wants_save(s, then), atomic_load(&c->asked) && then < s->last};
    if (!s->w->remote && !is_first(s))
        return STATUS_OK;
    if (s->w->remote)
        TRY(world_sum(s->w, told, 2));
    announce(s, then, told[0] != 0);
    if (told[1] && !atomic_load(&c->stop_after))
        atomic_store(&c->stop_after, then);
    return STATUS_OK;
}

bool saver_is_due(const struct saver *s, uint64_t taken)
{
    return atomic_load(&s->w->control->save_after[taken % SAVES_AHEAD]) == taken || saver_stops(s, taken);
}

bool saver_stops(const struct saver *s, uint64_t taken)
{
    return atomic_load(&s->w->control->stop_after) == taken;
}

/* ---- writing ---- */

/* Ends the run where a rank does not come because its process is stopped; a slow disk is no reason. */
static void look_for_stopped(struct saver *s)
{
    const struct world_rank *ranks = s->w->ranks;
    uint32_t mine = atomic_load(&ranks[s->w->rank].met);
    for (uint32_t r = 0; r < s->w->nranks; r++) {
        const char *trouble = atomic_load(&ranks[r].met) == mine ? "" : world_trouble(s->w, r);
        if (*trouble)
            world_fail(s->w, STATUS_WORLD, "a checkpoint waits for rank %u for %g s%s", r, s->rules.patience_s,
                       trouble);
    }
}

/* All ranks' writers meet, and know from then on whether any of them has failed. */
static void meet(struct saver *s)
{
    struct world_control *c = s->w->control;
    if (s->w->remote) {
        uint64_t failed = s->failed;
        s->failed |= world_sum(s->w, &failed, 1) != STATUS_OK || failed;
        return;
    }
    if (s->failed)
        atomic_store(&c->save_failed, 1);
    uint32_t turn = atomic_load(&c->saving_turn);
    int64_t start = world_now_ns(), patience_ns = (int64_t)(1e9 * s->rules.patience_s);
    atomic_fetch_add(&s->w->ranks[s->w->rank].met, 1);
    if (atomic_fetch_add(&c->saving_count, 1) + 1 == s->w->nranks) {
        atomic_store(&c->saving_count, 0);
        atomic_fetch_add(&c->saving_turn, 1);
    }
    while (atomic_load(&c->saving_turn) == turn && world_failed(s->w) == STATUS_OK) {
        usleep(200);
        if (patience_ns && world_now_ns() - start > patience_ns) {
            look_for_stopped(s);
            start = world_now_ns();
        }
    }
    s->failed |= atomic_load(&c->save_failed) || world_failed(s->w) != STATUS_OK;
}

static void note(struct saver *s, enum status st)
{
    if (st == STATUS_OK)
        return;
    s->failed = true;
    if (world_failed(s->w) == STATUS_OK)
        fprintf(stderr, "llmrun: the checkpoint of step %llu was not written: %s\n", (unsigned long long)s->now.step,
                s->error.text[0] ? s->error.text : "out of memory");
}

static void part_path(const struct saver *s, const char *below, char out[CHECKPOINT_PATH + 64])
{
    char folder[CHECKPOINT_PATH];
    checkpoint_path(s->rules.dir, s->now.step, folder);
    snprintf(out, CHECKPOINT_PATH + 64, "%s.tmp/%s", folder, below);
}

static enum status make_folder(struct saver *s, const char *path)
{
    const char *why = file_make_folder(path);
    return why ? error_set(&s->error, STATUS_WORLD, "cannot make folder %s: %s", path, why) : STATUS_OK;
}

/* Makes the generation's folders. */
static enum status make_folders(struct saver *s)
{
    char path[CHECKPOINT_PATH + 64];
    atomic_store(&s->w->control->save_failed, 0);
    TRY(make_folder(s, s->rules.dir));
    sweep(s);
    TRY(checkpoint_remove(s->rules.dir, s->now.step, true, &s->error));
    for (int state = 0; state < NSTATES; state++) {
        part_path(s, checkpoint_folders[state], path);
        if (state == 0 || s->catalogs->n[state])
            TRY(make_folder(s, path));
    }
    return STATUS_OK;
}

static enum status open_files(struct saver *s, bool make)
{
    char path[CHECKPOINT_PATH + 64];
    _Atomic uint64_t *values = shared_values(s);
    for (int state = 0; state < NSTATES; state++) {
        uint32_t n = s->catalogs->n[state];
        if (!n)
            continue;
        part_path(s, checkpoint_folders[state], path);
        s->sink[state] = (struct weights_sink){.catalog = s->catalogs->list[state], .ncatalog = n, .covered = values};
        values += n;
        TRY(safetensors_create(path, "model", s->catalogs->list[state], n, FILE_BYTES, make, &s->sink[state].files,
                               &s->error));
    }
    return STATUS_OK;
}

/* the hashes of all files' blocks, behind the counts of elements */
static _Atomic uint64_t *hashes(const struct saver *s)
{
    _Atomic uint64_t *values = shared_values(s);
    for (int state = 0; state < NSTATES; state++)
        values += s->catalogs->n[state];
    return values;
}

/* Ranks take blocks in turn, and flush a file whose last block they have. */
static enum status hash_and_flush(struct saver *s)
{
    _Atomic uint64_t *value = hashes(s);
    uint32_t nth = 0;
    for (int state = 0; state < NSTATES; state++)
        for (uint32_t i = 0; s->catalogs->n[state] && i < safetensors_nfiles(s->sink[state].files); i++) {
            const uint8_t *map;
            uint64_t bytes;
            safetensors_file(s->sink[state].files, i, &map, &bytes);
            for (uint64_t at = 0; at < bytes; at += CHECKPOINT_BLOCK, value++, nth++)
                if (nth % s->w->nranks == s->w->rank)
                    atomic_store(
                        value,
                        hash64(map + at, (size_t)(bytes - at < CHECKPOINT_BLOCK ? bytes - at : CHECKPOINT_BLOCK), 0));
            if ((nth - 1) % s->w->nranks == s->w->rank)
                TRY(safetensors_flush(s->sink[state].files, i, &s->error));
        }
    return STATUS_OK;
}

/* the files' list, whose hashes follow one another; the caller frees *out */
static enum status list_files(const struct saver *s, struct checkpoint_file **out, uint32_t *n)
{
    const uint64_t *blocks = (const uint64_t *)(const void *)hashes(s);
    uint32_t room = 0;
    for (int state = 0; state < NSTATES; state++)
        room += s->catalogs->n[state] ? safetensors_nfiles(s->sink[state].files) : 0;
    *n = 0;
    *out = calloc(room + (size_t)1, sizeof **out);
    for (int state = 0; *out && state < NSTATES; state++)
        for (uint32_t i = 0; s->catalogs->n[state] && i < safetensors_nfiles(s->sink[state].files); i++) {
            struct checkpoint_file *f = &(*out)[(*n)++];
            const uint8_t *map;
            const char *name = safetensors_file(s->sink[state].files, i, &map, &f->bytes);
            snprintf(f->name, sizeof f->name, "%s%s", checkpoint_folders[state], name);
            f->blocks = blocks;
            blocks += checkpoint_blocks(f->bytes);
        }
    return *out ? STATUS_OK : STATUS_WORLD;
}

/* Puts what has the generation's name out of the way: what is incomplete has another one. */
static enum status discard(struct saver *s, const char *folder)
{
    const char *why = file_remove_folder(folder);
    return why ? error_set(&s->error, STATUS_WORLD, "cannot remove %s: %s", folder, why) : STATUS_OK;
}

/* Gives the generation its name, once all of it is on the disk. */
static enum status commit(struct saver *s)
{
    char part[CHECKPOINT_PATH + 64], folder[CHECKPOINT_PATH];
    struct checkpoint_file *files;
    uint32_t n;
    for (int state = 0; state < NSTATES; state++)
        TRY(s->catalogs->n[state] ? weights_complete(&s->sink[state], &s->error) : STATUS_OK);
    TRY(list_files(s, &files, &n));
    enum status st = STATUS_OK;
    for (int state = 0; st == STATUS_OK && state < NSTATES; state++)
        if (s->catalogs->n[state]) {
            st = safetensors_finish(s->sink[state].files, true, &s->error);
            s->sink[state].files = NULL;
        }
    part_path(s, "", part);
    st = st == STATUS_OK ? checkpoint_write(part, &s->now, files, n, &s->error) : st;
    free(files);
    TRY(st);
    checkpoint_path(s->rules.dir, s->now.step, folder);
    part[strlen(part) - 1] = 0; /* the slash */
    struct stat there;
    if (!lstat(folder, &there)) /* a damaged one, which a resumed run has passed over */
        TRY(discard(s, folder));
    const char *why = file_flush_folder(part);
    why = why ? why : file_move(part, folder);
    why = why ? why : file_flush_folder(s->rules.dir);
    return why ? error_set(&s->error, STATUS_WORLD, "cannot give %s its name: %s", folder, why) : STATUS_OK;
}

/* Removes generations that the rules do not keep.  Those of later steps, which a resumed run has passed over because
 * they are damaged, do not count: the newest one is what has just been written. */
static enum status prune(struct saver *s)
{
    uint64_t *steps;
    uint32_t n;
    enum status st = checkpoint_list(s->rules.dir, &steps, &n, &s->error);
    while (n && steps[n - 1] > s->now.step)
        n--;
    for (uint32_t i = 0; st == STATUS_OK && s->rules.keep && i + s->rules.keep < n; i++)
        if (!s->rules.keep_every || steps[i] % s->rules.keep_every != 0)
            st = checkpoint_remove(s->rules.dir, steps[i], false, &s->error);
    free(steps);
    return st;
}

static void write_files(struct saver *s)
{
    if (is_first(s))
        note(s, make_folders(s));
    if (is_first(s) || s->w->remote) /* for all ranks that share them */
        memset(s->w->coverage + s->catalogs->base * sizeof(uint64_t), 0, s->catalogs->nvalues * sizeof(uint64_t));
    for (int turn = 0; turn < 2; turn++) { /* rank 0 makes the files, then the others open them */
        if (!s->failed && is_first(s) == (turn == 0))
            note(s, open_files(s, turn == 0));
        meet(s);
    }
    for (uint32_t i = 0; i < s->nstaged && !s->failed; i++)
        weights_store(&s->place, &s->staged[i].piece, &s->staged[i].copy, &s->sink[s->staged[i].state]);
    meet(s);
    if (!s->failed)
        note(s, hash_and_flush(s));
    meet(s);
    if (!s->failed)
        note(s, world_share(s->w, shared_values(s), s->catalogs->nvalues));
    if (is_first(s) && !s->failed)
        note(s, commit(s));
}

/* the whole of a save, of which all ranks do their part */
static void *save(void *context)
{
    struct saver *s = context;
    struct world_control *c = s->w->control;
    s->failed = false;
    memset(s->sink, 0, sizeof s->sink);
    write_files(s);
    for (int state = 0; state < NSTATES; state++)
        if (s->sink[state].files)
            safetensors_finish(s->sink[state].files, false, &s->error);
    meet(s);
    if (is_first(s)) {
        struct error ignored;
        if (s->failed) /* a rank that still writes has the files open, and does not miss their names */
            checkpoint_remove(s->rules.dir, s->now.step, true, &ignored);
        if (!s->failed && prune(s) != STATUS_OK)
            fprintf(stderr, "llmrun: %s\n", s->error.text);
    }
    s->figures.written += !s->failed;
    s->figures.failed += s->failed;
    atomic_fetch_sub(&c->saving, 1);
    return NULL;
}

static void join(struct saver *s)
{
    if (s->running)
        pthread_join(s->thread, NULL);
    s->running = false;
}

bool saver_take(struct saver *s, const struct checkpoint *c, bool wait)
{
    int64_t start = world_now_ns();
    join(s);
    s->error = (struct error){""};
    s->now = *c;
    copy_values(s);
    atomic_fetch_add(&s->w->control->saving, 1);
    s->running = !wait && !s->w->remote && pthread_create(&s->thread, NULL, save, s) == 0;
    if (!s->running)
        save(s);
    s->figures.stall_s += (double)(world_now_ns() - start) * 1e-9;
    return s->running || !s->failed;
}

struct saver_figures saver_figures(const struct saver *s)
{
    return s->figures;
}

void saver_close(struct saver *s)
{
    if (!s)
        return;
    join(s);
    free(s->staged);
    free(s->memory);
    free(s);
}
