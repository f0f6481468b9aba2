/* Disks after a power cut.  Files and folders are nodes; names are entries in folders, so that a file whose folder's name
 * was lost is lost with it. */

#include "tests/e2e/disk_states.h"
#include "tests/compiler/random_plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, PAGE = 4096, MOST = 4096, MOST_ENTRIES = 64 };

/* the names in a folder */
struct entries {
    uint32_t n;
    struct {
        char name[64];
        uint32_t node;
    } entry[MOST_ENTRIES];
};

static uint32_t lookup(const struct entries *e, const char *name)
{
    for (uint32_t i = 0; i < e->n; i++)
        if (!strcmp(e->entry[i].name, name))
            return e->entry[i].node;
    return UINT32_MAX;
}

static void apply(struct entries *e, const struct disk_change *c)
{
    const char *const names[] = {c->gone, c->here};
    for (int k = 0; k < 2; k++) /* both go: a new name takes the place of what had it */
        for (uint32_t i = 0; *names[k] && i < e->n; i++)
            if (!strcmp(e->entry[i].name, names[k]))
                e->entry[i] = e->entry[--e->n];
    if (!*c->here || e->n == MOST_ENTRIES)
        return;
    snprintf(e->entry[e->n].name, sizeof e->entry->name, "%s", c->here);
    e->entry[e->n++].node = c->node;
}

/* ---- the list ---- */

/* while the list is read: the folders as the run saw them */
struct reader {
    struct disk *d;
    struct entries *live; /* by node */
    const char *root, *whole;
};

/* the node of a path, and its folder and last name */
static uint32_t resolve(const struct reader *r, const char *path, uint32_t *folder, char name[64])
{
    size_t n = strlen(r->root);
    uint32_t at = 0;
    *folder = UINT32_MAX;
    *name = 0;
    if (strncmp(path, r->root, n) != 0)
        return UINT32_MAX;
    for (path += n; *path;) {
        size_t length = strcspn(path, "/");
        if (length && length < 64) {
            *folder = at;
            snprintf(name, 64, "%.*s", (int)length, path);
            at = at == UINT32_MAX ? at : lookup(&r->live[at], name);
        }
        path += length + (path[length] == '/');
    }
    return at;
}

/* where the bytes of what is written into step-N.tmp are in the end: names lose what stands behind .tmp */
static void find_content(const struct reader *r, const char *path, char *out, size_t size)
{
    const char *in = strstr(path, "step-"), *rest = in ? strstr(in, ".tmp/") : NULL;
    if (!rest)
        return;
    int n = snprintf(out, size, "%s/%.*s/%s", r->whole, (int)(rest - in), in, rest + 5);
    char *end = strstr(out, ".tmp");
    if (end && n > 0)
        *end = 0;
}

/* one slash between names and none at the end; numbers behind a dash become N */
static void tidy(const char *path, char *out, size_t size)
{
    size_t n = 0;
    for (const char *c = path; *c && n + 1 < size; c++) {
        bool digit = *c >= '0' && *c <= '9';
        if ((*c == '/' && (n ? out[n - 1] == '/' : false)) || (digit && n && out[n - 1] == 'N'))
            continue;
        out[n] = digit && n && out[n - 1] == '-' ? 'N' : *c;
        n++;
    }
    n -= n && out[n - 1] == '/';
    out[n] = 0;
}

static struct disk_change *add(struct disk *d, enum disk_kind kind, uint32_t folder, uint32_t node)
{
    d->change[d->nchanges] = (struct disk_change){.kind = kind, .folder = folder, .node = node};
    return &d->change[d->nchanges++];
}

static bool take_name(struct reader *r, uint32_t folder, uint32_t node, const char *gone, const char *here)
{
    struct disk_change *c = add(r->d, DISK_NAME, folder, node);
    snprintf(c->gone, sizeof c->gone, "%s", gone);
    snprintf(c->here, sizeof c->here, "%s", here);
    apply(&r->live[folder], c);
    return true;
}

static bool take_change(struct reader *r, const char *what, const char *path, const char *to)
{
    uint32_t folder, other;
    char name[64], later[64];
    uint32_t node = resolve(r, path, &folder, name);
    bool makes = !strcmp(what, "create") || !strcmp(what, "mkdir");
    if (makes && node == UINT32_MAX && folder != UINT32_MAX) {
        struct disk_node *n = &r->d->node[r->d->nnodes];
        n->folder = *what == 'm';
        tidy(path + strlen(r->root), n->path, sizeof n->path);
        find_content(r, path, n->content, sizeof n->content);
        return take_name(r, folder, r->d->nnodes++, "", name);
    }
    if (node == UINT32_MAX || makes)
        return false;
    if (!strcmp(what, "write"))
        return add(r->d, DISK_DATA, 0, node) != NULL;
    if (!strcmp(what, "fsync"))
        return add(r->d, DISK_FLUSH, 0, node) != NULL;
    if (!strcmp(what, "unlink") || !strcmp(what, "rmdir"))
        return take_name(r, folder, node, name, "");
    resolve(r, to, &other, later);
    return !strcmp(what, "rename") && other == folder && take_name(r, folder, node, name, later);
}

bool disk_read(struct disk *d, const char *list, const char *root, const char *whole)
{
    char line[3 * PATH], what[16], path[PATH], to[PATH];
    struct reader r = {d, calloc(MOST, sizeof *r.live), root, whole};
    FILE *in = fopen(list, "r");
    bool fine = in && r.live;
    *d = (struct disk){.change = calloc(MOST, sizeof *d->change), .node = calloc(MOST, sizeof *d->node), .nnodes = 1};
    d->node[0].folder = true;
    while (fine && fgets(line, sizeof line, in) && d->nchanges < MOST && d->nnodes < MOST) {
        *to = 0;
        fine = sscanf(line, "%*d %15s %4095s %4095s", what, path, to) >= 2 && take_change(&r, what, path, to);
        if (!fine)
            printf("\n    not understood: %s", line);
    }
    if (in)
        fclose(in);
    free(r.live);
    return fine && d->nchanges < MOST && d->nnodes < MOST;
}

void disk_free(struct disk *d)
{
    free(d->change);
    free(d->node);
}

/* ---- a disk ---- */

struct making {
    const struct disk *d;
    const struct disk_choice *c;
    uint64_t random;
    struct entries *entries; /* by node: what the disk has */
    bool *flushed;           /* by node: all its bytes are there */
};

/* Was the node flushed between this change and the cut? */
static bool is_flushed(const struct making *m, uint32_t change, uint32_t node)
{
    for (uint32_t i = change + 1; i < m->c->made; i++) {
        const struct disk_change *c = &m->d->change[i];
        if (c->kind == DISK_FLUSH && c->node == node && !c->ignored)
            return true;
    }
    return false;
}

static void keep_names(struct making *m, uint32_t folder)
{
    uint32_t loose = 0, kept = 0;
    for (uint32_t i = 0; i < m->c->made; i++)
        loose += m->d->change[i].kind == DISK_NAME && m->d->change[i].folder == folder && !is_flushed(m, i, folder);
    uint32_t prefix = random_below(&m->random, loose + 1);
    for (uint32_t i = 0; i < m->c->made; i++) {
        const struct disk_change *c = &m->d->change[i];
        if (c->kind != DISK_NAME || c->folder != folder)
            continue;
        bool keeps = is_flushed(m, i, folder) || m->c->names == KEEP_ALL ||
                     (m->c->names == KEEP_SOME && random_below(&m->random, 2)) ||
                     (m->c->names == KEEP_PREFIX && kept++ < prefix);
        if (keeps)
            apply(&m->entries[folder], c);
    }
}

/* a file that may have lost pages, and its end */
static bool write_torn(struct making *m, const char *from, const char *to)
{
    uint8_t page[PAGE];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    struct stat about = {.st_size = 0};
    bool fine = in >= 0 && out >= 0 && !fstat(in, &about), some = m->c->data != KEEP_NOTHING;
    off_t length = some ? (off_t)random_below(&m->random, (uint32_t)about.st_size + 1) : 0;
    if (some && random_below(&m->random, 2))
        length = about.st_size;
    fine = fine && !ftruncate(out, length);
    for (off_t at = 0; fine && at < length; at += PAGE) {
        size_t n = (size_t)(length - at < PAGE ? length - at : PAGE);
        if (random_below(&m->random, 4)) /* few pages are lost, so that it looks whole */
            fine = pread(in, page, n, at) == (ssize_t)n && pwrite(out, page, n, at) == (ssize_t)n;
    }
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return fine;
}

static bool make_node(struct making *m, uint32_t node, const char *to)
{
    const struct disk_node *n = &m->d->node[node];
    char path[PATH];
    bool fine = true;
    if (!n->folder)
        return m->flushed[node] || m->c->data == KEEP_ALL ? !link(n->content, to) : write_torn(m, n->content, to);
    if (mkdir(to, 0777))
        return false;
    for (uint32_t i = 0; fine && i < m->entries[node].n; i++) {
        snprintf(path, sizeof path, "%.3900s/%s", to, m->entries[node].entry[i].name);
        fine = make_node(m, m->entries[node].entry[i].node, path);
    }
    return fine;
}

bool disk_make(const struct disk *d, const struct disk_choice *c, const char *to)
{
    struct making m = {.d = d, .c = c, .random = c->random};
    m.entries = calloc(d->nnodes, sizeof *m.entries);
    m.flushed = calloc(d->nnodes, sizeof *m.flushed);
    for (uint32_t i = 0; i < d->nnodes; i++)
        if (d->node[i].folder)
            keep_names(&m, i);
    for (uint32_t i = 0; i < c->made; i++)
        if (d->change[i].kind == DISK_FLUSH && !d->change[i].ignored)
            m.flushed[d->change[i].node] = true; /* nothing is written behind it, which the test asserts */
    bool fine = make_node(&m, 0, to);
    free(m.entries);
    free(m.flushed);
    return fine;
}
