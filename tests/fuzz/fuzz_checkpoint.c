/* checkpoint.json from hostile files.  The folder has one generation, whose index the input is: a first byte that is
 * even adds the hash of what follows, else the input says it itself.  Beside the files that an index may name there is
 * one outside of the generation, and a link.  Whatever is accepted must be what it says: numbers that can be used, and
 * plain names of files inside with so many bytes. */

#include "runtime/checkpoint.h"
#include "runtime/file.h"
#include "runtime/hash.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fine)
{
    if (!fine)
        abort();
}

struct place {
    char dir[64], generation[80];
    FILE *index;
};

static void add(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    require(out && fputs(text, out) >= 0 && !fclose(out));
}

static struct place place;

static void remove_place(void)
{
    fclose(place.index);
    file_remove_folder(place.generation);
    file_remove_folder(place.dir);
}

static void open_place(struct place *p)
{
    char path[256];
    snprintf(p->dir, sizeof p->dir, "/dev/shm/llmc-fuzz-checkpoint-%d", (int)getpid());
    snprintf(p->generation, sizeof p->generation, "%s/step-7", p->dir);
    snprintf(path, sizeof path, "%s/moment1", p->generation);
    require(!mkdir(p->dir, 0700) && !mkdir(p->generation, 0700) && !mkdir(path, 0700));
    add(p->dir, "outside", "outside\n");
    add(p->generation, "model.safetensors", "weights\n");
    add(p->generation, "moment1/model.safetensors", "moments\n");
    add(p->generation, "empty", "");
    snprintf(path, sizeof path, "%s/loop", p->generation);
    require(!symlink("loop", path));
    snprintf(path, sizeof path, "%s/checkpoint.json", p->generation);
    p->index = fopen(path, "w");
    require(p->index != NULL);
    require(!atexit(remove_place));
}

static void write_index(FILE *f, const uint8_t *data, size_t size)
{
    rewind(f);
    fwrite(data + 1, 1, size - 1, f);
    if (data[0] % 2 == 0)
        fprintf(f, ",\n\"hash\": \"%016llx\"}\n", (unsigned long long)hash64(data + 1, size - 1, 0));
    require(!fflush(f) && !ftruncate(fileno(f), ftell(f)));
}

/* what the reader has accepted, read once more */
static void check_files(const struct place *p, const uint8_t *data, size_t size)
{
    char path[512], *text = NULL;
    size_t n = 0, i;
    json_t *file;
    struct stat is;
    FILE *f = open_memstream(&text, &n);
    fwrite(data + 1, 1, size - 1, f);
    fputs(data[0] % 2 ? "" : "}", f);
    fclose(f);
    json_t *root = json_loads(text, 0, NULL);
    require(root && json_array_size(json_object_get(root, "files")));
    json_array_foreach(json_object_get(root, "files"), i, file)
    {
        const char *name = json_string_value(json_object_get(file, "name"));
        snprintf(path, sizeof path, "%s/%s", p->generation, name);
        require(!strstr(name, "..") && name[0] != '/' && !lstat(path, &is) && S_ISREG(is.st_mode));
        require(json_integer_value(json_object_get(file, "bytes")) == is.st_size);
    }
    json_decref(root);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct place *p = &place;
    struct checkpoint c;
    struct error error = {""};
    char folder[CHECKPOINT_PATH];
    bool found;
    if (size < 2)
        return 0;
    if (!p->index)
        open_place(p);
    write_index(p->index, data, size);
    enum status st = checkpoint_find(p->dir, &c, folder, &found, &error);
    require(found == (st == STATUS_OK) && found == !error.text[0]);
    if (!found)
        return 0;
    require(c.step == 7 && strlen(c.plan) == 64 && *c.optimizer && c.rates[0] >= 0 && isfinite(c.rates[1]));
    for (int i = 0; c.scaled && i < SCALE_WORDS; i++)
        require(c.scale[i] >= 0 && isfinite(c.scale[i]));
    require(!c.scaled || c.scale[SCALE_SKIPPED] <= 7);
    check_files(p, data, size);
    return 0;
}
