/* Damaged checkpoints.  A folder has a generation of step 1 that is whole, and one of step 2 to which something is
 * done: then step 1 is what is found, and without it the folder is an error that names what is wrong.  Nothing makes
 * anybody wait. */

#include "runtime/checkpoint.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "tests/compiler/random_plan.h"
#include "tests/draws.h"
#include "tests/e2e/faulted.h"
#include "tests/skip.h"

#include <CUnit/CUnit.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

enum { TENSORS = 3, ROWS = 8, COLS = 16, SHARD_BYTES = 1100, PATH = CHECKPOINT_PATH + 128 };

struct place {
    char dir[E2E_PATH];
    uint32_t cases, failed;
};

/* ---- a generation ---- */

static const struct weight_plan catalog[TENSORS] = {
    {.name = "a", .dtype = WEIGHT_F32, .ndim = 2, .shape = {ROWS, COLS}},
    {.name = "b", .dtype = WEIGHT_F32, .ndim = 2, .shape = {ROWS, COLS}},
    {.name = "c", .dtype = WEIGHT_F32, .ndim = 2, .shape = {ROWS, COLS}},
};

struct written {
    struct checkpoint_file file[NSTATES * TENSORS];
    uint64_t hash[NSTATES * TENSORS];
    uint32_t n;
};

static void write_state(const char *folder, uint64_t step, int state, uint64_t file_bytes, struct written *w)
{
    char path[PATH];
    struct weight_files *files;
    struct error error = {""};
    snprintf(path, sizeof path, "%s/%s", folder, checkpoint_folders[state]);
    CU_ASSERT_EQUAL_FATAL(safetensors_create(path, "model", catalog, TENSORS, file_bytes, true, &files, &error), STATUS_OK);
    for (uint32_t i = 0; i < TENSORS; i++)
        for (uint32_t k = 0; k < ROWS * COLS; k++) {
            float x = (float)(1000 * step + 100 * (uint64_t)state + 10 * i + k);
            memcpy(safetensors_target(files, i) + k * sizeof x, &x, sizeof x);
        }
    for (uint32_t i = 0; i < safetensors_nfiles(files); i++) {
        const uint8_t *map;
        struct checkpoint_file *f = &w->file[w->n];
        const char *name = safetensors_file(files, i, &map, &f->bytes);
        snprintf(f->name, sizeof f->name, "%s%s", checkpoint_folders[state], name);
        w->hash[w->n] = hash64(map, f->bytes, 0);
        f->blocks = &w->hash[w->n++];
    }
    CU_ASSERT_EQUAL_FATAL(safetensors_finish(files, true, &error), STATUS_OK);
}

static void write_generation(const struct place *p, uint64_t step, uint64_t file_bytes)
{
    char folder[CHECKPOINT_PATH];
    struct written w = {.n = 0};
    struct error error = {""};
    struct checkpoint c = {.step = step, .batch = 4, .sequence = 16, .samples = 9, .seed = 1, .steps = 7, .data = 0xda7a};
    c.scaled = true;
    memcpy(c.scale, (const double[SCALE_WORDS]){65536, 3, 2000}, sizeof c.scale);
    snprintf(c.optimizer, sizeof c.optimizer, "ADAMW");
    memcpy(c.rates, (const double[]){0.9, 0.95}, sizeof c.rates);
    memset(c.plan, 'f', 64);
    checkpoint_path(p->dir, step, folder);
    mkdir(folder, 0777);
    for (int state = 0; state < NSTATES; state++)
        write_state(folder, step, state, file_bytes, &w);
    CU_ASSERT_EQUAL_FATAL(checkpoint_write(folder, &c, w.file, w.n, &error), STATUS_OK);
}

/* sharded: three files of one tensor each */
static void begin(struct place *p, const char *name, bool sharded)
{
    *p = (struct place){.cases = 0};
    e2e_folder(p->dir, name);
    write_generation(p, 1, UINT64_MAX);
    write_generation(p, 2, sharded ? SHARD_BYTES / 2 : UINT64_MAX);
    CU_ASSERT_EQUAL_FATAL(faulted_find(p->dir), 2);
}

static void end(struct place *p)
{
    CU_ASSERT_EQUAL(p->failed, 0);
    printf("(%u) ", p->cases);
}

/* ---- what is expected ---- */

static void expect(struct place *p, uint64_t step, const char *what, uint64_t where)
{
    uint64_t found = faulted_find(p->dir);
    p->cases++;
    if (found == step)
        return;
    if (p->failed++ < 10)
        printf("\n    %s %llu: step %llu is found", what, (unsigned long long)where, (unsigned long long)found);
}

/* without another generation it is an error that names the folder */
static void expect_alone(struct place *p, const char *what)
{
    char from[PATH], to[PATH], path[CHECKPOINT_PATH];
    struct checkpoint c;
    struct error error = {""};
    bool found;
    snprintf(from, sizeof from, "%s/step-1", p->dir);
    snprintf(to, sizeof to, "%s/aside", p->dir);
    CU_ASSERT_EQUAL_FATAL(rename(from, to), 0);
    int kept = faulted_hush();
    enum status st = checkpoint_find(p->dir, &c, path, &found, &error);
    faulted_speak(kept);
    bool fine = st == STATUS_INPUT && !found && strstr(error.text, p->dir) && strstr(error.text, "none of its 1");
    p->failed += !fine;
    if (!fine)
        printf("\n    %s: status %d: %s", what, (int)st, error.text);
    CU_ASSERT_EQUAL_FATAL(rename(to, from), 0);
}

struct bytes {
    char path[PATH];
    uint8_t *data;
    size_t n;
};

static struct bytes take(const struct place *p, const char *name)
{
    struct bytes b;
    snprintf(b.path, sizeof b.path, "%s/step-2/%s", p->dir, name);
    FILE *f = fopen(b.path, "rb");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fseek(f, 0, SEEK_END);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.data = malloc(b.n + 1);
    CU_ASSERT_EQUAL_FATAL(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

static void put(const struct bytes *b, size_t n)
{
    int fd = open(b->path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    CU_ASSERT_FATAL(fd >= 0 && write(fd, b->data, n) == (ssize_t)n);
    close(fd);
}

static void put_back(struct bytes *b)
{
    put(b, b->n);
    free(b->data);
}

/* ---- bits and lengths ---- */

static void flip(struct place *p, struct bytes *b, uint64_t bit)
{
    b->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    put(b, b->n);
    expect(p, 1, "flipped bit", bit);
    b->data[bit / 8] ^= (uint8_t)(1 << bit % 8);
}

static void test_index(void)
{
    struct place p;
    begin(&p, "index", false);
    struct bytes b = take(&p, "checkpoint.json");
    uint64_t stride = test_quick() ? 13 : 1;
    for (uint64_t bit = 0; bit < 8 * b.n; bit += stride)
        flip(&p, &b, bit);
    for (size_t n = 0; n < b.n; n++) {
        put(&b, n);
        expect(&p, 1, "cut at byte", n);
    }
    expect_alone(&p, "an index that is cut");
    b.data[b.n] = '\n';
    put(&b, b.n + 1);
    expect(&p, 1, "a byte more than", b.n);
    put_back(&b);
    expect(&p, 2, "put back", 0);
    end(&p);
}

static void test_tensors(void)
{
    static const char *const files[] = {"model.safetensors", "moment1/model.safetensors", "moment2/model.safetensors"};
    struct place p;
    begin(&p, "tensors", false);
    uint64_t state = 5;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct bytes b = take(&p, files[i]);
        for (uint32_t k = 0; k < test_draws(4000, 100); k++)
            flip(&p, &b, random_below(&state, (uint32_t)(8 * b.n)));
        for (uint32_t k = 0; k < test_draws(1000, 50); k++) {
            size_t n = (size_t)random_below(&state, (uint32_t)b.n);
            put(&b, n);
            expect(&p, 1, "cut at byte", n);
        }
        b.data[b.n] = 0;
        put(&b, b.n + 1);
        expect(&p, 1, "a byte more than", b.n);
        expect_alone(&p, files[i]);
        put_back(&b);
        expect(&p, 2, "put back", 0);
    }
    end(&p);
}

/* ---- files in each other's place ---- */

static void test_places(void)
{
    static const struct {
        const char *what, *script;
        uint64_t step;
    } cases[] = {
        {"two shards exchanged", "mv $A x; mv $B $A; mv x $B", 1},
        {"a shard twice", "cp $A $B", 1},
        {"a shard missing", "rm $B", 1},
        {"moments exchanged", "mv moment1 x; mv moment2 moment1; mv x moment2", 1},
        {"moments of another step", "rm -r moment1; cp -r ../step-1/moment1 .", 1},
        {"weights of another step", "rm *.safetensors $I; cp ../step-1/*.safetensors .", 1},
        {"no moments", "rm -r moment1", 1},
        {"an index of shards that misses one", "sed -i s/00003-of/00001-of/ $I", 1},
        {"no index of shards", "rm $I", 1},
        {"an index of shards that is not known", "cp $I ../step-1", 2},
        {"such an index, where it is followed", "cp $I ../step-1; rm checkpoint.json", 0},
        {"such an index of moments", "cp $I ../step-1/moment2; rm checkpoint.json", 0},
        {"the index of another step", "cp ../step-1/checkpoint.json .", 1},
        {"another step's generation", "rm -r *; cp -r ../step-1/* .", 1},
        {"no index", "rm checkpoint.json", 1},
        {"an empty folder", "rm -r *", 1},
        {"more than there should be", "echo x >more; mkdir moment1/more", 2},
        {"links to what is there", "mv moment1 ../elsewhere; ln -s ../elsewhere moment1", 2},
    };
    struct place p;
    char log[PATH], script[PATH];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(&p, "places", true);
        snprintf(script, sizeof script, "%s/script", p.dir);
        FILE *f = fopen(script, "w");
        CU_ASSERT_PTR_NOT_NULL_FATAL(f);
        fprintf(f, "set -e; cd %s/step-2; A=model-00001-of-00003.safetensors B=model-00002-of-00003.safetensors\n"
                   "I=model.safetensors.index.json\n%s\n", p.dir, cases[i].script);
        fclose(f);
        snprintf(log, sizeof log, "%s/log", p.dir);
        CU_ASSERT_EQUAL(e2e_command(log, "sh %s", script), 0);
        expect(&p, cases[i].step, cases[i].what, i);
        CU_ASSERT_EQUAL(p.failed, 0);
    }
}

/* ---- what is no file ---- */

enum odd { FOLDER, FIFO, DEVICE, SOCKET, LOOP, NOWHERE, EMPTY, NODD };
static const char *const words[NODD] = {"folder", "FIFO", "device", "socket", "link to itself", "link to nothing", "empty file"};

static bool make_odd(const char *path, enum odd kind)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    switch (kind) {
    case FOLDER:
        return mkdir(path, 0777) == 0;
    case FIFO:
        return mkfifo(path, 0666) == 0;
    case DEVICE:
        return mknod(path, S_IFCHR | 0666, makedev(1, 5)) == 0;
    case LOOP:
        return symlink(path, path) == 0;
    case NOWHERE:
        return symlink("nothing", path) == 0;
    case EMPTY: {
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
        close(fd);
        return fd >= 0;
    }
    case SOCKET:
    case NODD:
        break;
    }
    snprintf(a.sun_path, sizeof a.sun_path, "build/socket-%d", (int)getpid());
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    bool made = kind == SOCKET && s >= 0 && bind(s, (const struct sockaddr *)&a, sizeof a) == 0 && rename(a.sun_path, path) == 0;
    close(s);
    return made;
}

static void test_odd(void)
{
    static const char *const names[] = {"step-2",  "step-2/checkpoint.json",  "step-2/model.safetensors.index.json",
                                        "step-2/model-00002-of-00003.safetensors",
                                        "step-2/moment1", "step-2/moment2/model-00001-of-00003.safetensors"};
    struct place p;
    char path[PATH], aside[PATH];
    begin(&p, "odd", true);
    snprintf(aside, sizeof aside, "%s/aside", p.dir);
    alarm(60); /* nothing of this waits */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int kind = 0; kind < NODD; kind++) {
            snprintf(path, sizeof path, "%s/%s", p.dir, names[i]);
            CU_ASSERT_EQUAL_FATAL(rename(path, aside), 0);
            if (make_odd(path, (enum odd)kind)) {
                expect(&p, 1, words[kind], i);
                CU_ASSERT_EQUAL(remove(path), 0);
            } else {
                test_skip("no %s can be made here", words[kind]);
            }
            CU_ASSERT_EQUAL_FATAL(rename(aside, path), 0);
        }
    alarm(0);
    expect(&p, 2, "put back", 0);
    end(&p);
}

/* ---- forged indexes: their hash is right ---- */

static void forge(struct place *p, const char *from, const char *to, uint64_t step)
{
    struct bytes b = take(p, "checkpoint.json");
    char *text = (char *)b.data, *hash = NULL, *at, *out = NULL;
    size_t size;
    text[b.n] = 0;
    hash = strstr(text, ",\n\"hash\"");
    at = strstr(text, from);
    CU_ASSERT_FATAL(hash && at && at < hash);
    FILE *f = open_memstream(&out, &size);
    fprintf(f, "%.*s%s%.*s", (int)(at - text), text, to, (int)(hash - at - (long)strlen(from)), at + strlen(from));
    fflush(f);
    fprintf(f, ",\n\"hash\": \"%016llx\"}\n", (unsigned long long)hash64(out, size, 0));
    fclose(f);
    struct bytes forged = {.data = (uint8_t *)out, .n = size};
    memcpy(forged.path, b.path, sizeof b.path);
    put(&forged, size);
    free(out);
    expect(p, step, to, 0);
    put_back(&b);
}

static void test_forged(void)
{
    static const char first[] = "\"name\": \"model.safetensors\"", moment[] = "\"name\": \"moment1/model.safetensors\"";
    static const struct {
        const char *from, *to;
        uint64_t step;
    } cases[] = {
        {"\"seed\": 1", "\"seed\": 2", 2}, /* so it is the rest that is refused */
        {first, "\"name\": \"../step-2/model.safetensors\"", 1},
        {first, "\"name\": \"./model.safetensors\"", 1},
        {first, "\"name\": \"moment1/../model.safetensors\"", 1},
        {first, "\"name\": \"..\"", 1},
        {first, "\"name\": \".\"", 1},
        {first, "\"name\": \"\"", 1},
        {first, "\"name\": \"/etc/hostname\"", 1},
        {first, "\"name\": 7", 1},
        {first, "\"named\": 7", 1},
        {moment, "\"name\": \"moment1/\"", 1},
        {moment, "\"name\": \"moment1//model.safetensors\"", 1},
        {moment, "\"name\": \"moment3/model.safetensors\"", 1},
        {"\"step\": 2", "\"step\": 3", 1},
        {"\"step\": 2", "\"step\": -2", 1},
        {"\"step\": 2", "\"step\": 2.0", 1},
        {"\"step\": 2", "\"step\": 99999999999999999999", 1},
        {"\"step\": 2", "\"step\": 2, \"step\": 2", 1},
        {"\"step\": 2, ", "", 1},
        {"\"batch\": 4", "\"batch\": \"4\"", 1},
        {"llmc checkpoint 2", "llmc checkpoint 1", 1},
        {"\"plan\": \"fffffff", "\"plan\": \"/../../", 1},
        {"\"data\": \"000000000000da7a", "\"data\": \"0000000000000000", 2},
        {"\"data\": \"000000000000da7a", "\"data\": \"00000000000000da7a", 1},
        {"\"data\": \"000000000000da7a", "\"data\": \"00000000000ndata", 1},
        {"\"optimizer\": \"ADAMW\", ", "", 1},
        {"\"optimizer\": \"ADAMW", "\"optimizer\": \"ADAMWADAMWADAMW", 2},
        {"\"optimizer\": \"ADAMW", "\"optimizer\": \"ADAMWADAMWADAMW0", 1},
        {"\"optimizer\": \"ADAMW", "\"optimizer\": \"A\\n", 1},
        {"\"rates\": [0.", "\"rates\": [0, 0.", 1},
        {"\"rates\": [0.", "\"rates\": [-0.", 1},
        {"\"loss_scale\": [65536, 3, 2000, 0]", "\"loss_scale\": [65536, 3, 2000, 2]", 2},
        {"\"loss_scale\": [65536, 3, 2000, 0]", "\"loss_scale\": [65536, 3, 2000, 3]", 1}, /* of 2 steps 3 skipped */
        {"\"loss_scale\": [65536, 3, 2000, 0]", "\"loss_scale\": [65536, 3, 2000, 1e300]", 1},
        {"\"loss_scale\": [65536, ", "\"loss_scale\": [-65536, ", 1},
        {"\"plan\": \"f", "\"plan\": \"", 1},
        {"\"loss_scale\": [65536, ", "\"loss_scale\": [", 1},
        {"\"loss_scale\": [65536, ", "\"loss_scale\": [\"65536\", ", 1},
        {"\"files\": [", "\"files\": [[], ", 1},
        {"\"files\": [", "\"files\": [{}, ", 1},
        {"\"files\": [", "\"files\": [], \"others\": [", 1},
        {"\"blocks\": [", "\"blocks\": [\"0\", ", 1},
        {"\"blocks\": [", "\"blocks\": [7, ", 1},
        {"\"bytes\": ", "\"bytes\": 1", 1},
        {"\"bytes\": ", "\"bytes\": -", 1},
        {"{\"format\"", "[\"format\"", 1},
        {"{\"format\"", "{\"format\": {\"format\"", 1},
    };
    struct place p;
    begin(&p, "forged", false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        forge(&p, cases[i].from, cases[i].to, cases[i].step);
    end(&p);
}

/* ---- names that are no generations ---- */

static void test_names(void)
{
    static const char *const names[] = {"step-3.tmp",  "step-03", "step-", "step--3", "step-+3", "step-3 ", "Step-3", "step-3x",
                                        "step-99999999999999999999", "step- 3", "xstep-3", "step-0x3"};
    struct place p;
    char from[PATH], to[PATH];
    uint64_t *steps;
    uint32_t n;
    struct error error = {""};
    begin(&p, "names", false);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(from, sizeof from, "%s/step-2", p.dir);
        snprintf(to, sizeof to, "%s/%s", p.dir, names[i]);
        CU_ASSERT_EQUAL_FATAL(rename(from, to), 0);
        expect(&p, 1, names[i], i);
        CU_ASSERT_EQUAL_FATAL(rename(to, from), 0);
    }
    snprintf(to, sizeof to, "%s/step-7.tmp", p.dir);
    CU_ASSERT_EQUAL(mkdir(to, 0777), 0);
    CU_ASSERT_EQUAL(make_odd(strcat(to, "/file"), EMPTY), true);
    snprintf(to, sizeof to, "%s/step-8.tmp", p.dir);
    CU_ASSERT_EQUAL(make_odd(to, LOOP), true);
    snprintf(to, sizeof to, "%s/step-9.tmp-5", p.dir);
    CU_ASSERT_EQUAL(make_odd(to, EMPTY), true);
    CU_ASSERT_EQUAL(checkpoint_sweep(p.dir, &error), STATUS_OK);
    CU_ASSERT_EQUAL(access(to, F_OK), 0); /* not ours */
    snprintf(to, sizeof to, "%s/step-7.tmp", p.dir);
    CU_ASSERT_NOT_EQUAL(access(to, F_OK), 0);
    CU_ASSERT_EQUAL(checkpoint_list(p.dir, &steps, &n, &error), STATUS_OK);
    CU_ASSERT_FATAL(n == 2 && steps[0] == 1 && steps[1] == 2);
    free(steps);
    CU_ASSERT_EQUAL(checkpoint_remove(p.dir, 2, false, &error), STATUS_OK);
    expect(&p, 1, "removed", 2);
    end(&p);
}

void suite_checkpoint_damage(void);
void suite_checkpoint_damage(void)
{
    CU_pSuite s = CU_add_suite("checkpoint_damage", NULL, NULL);
    CU_add_test(s, "every bit and every length of the index", test_index);
    CU_add_test(s, "bits and lengths of tensors", test_tensors);
    CU_add_test(s, "files in each other's place", test_places);
    CU_add_test(s, "what is no file", test_odd);
    CU_add_test(s, "indexes with a right hash", test_forged);
    CU_add_test(s, "names", test_names);
}
