/* checkpoint.json from hostile files.  The folder has one generation, whose index the input is: a first byte that is
 * even adds the hash of what follows, else the input says it itself.  Beside the files that an index may name there is
 * one outside of the generation, and a link.  Whatever is accepted must be what it says: numbers that can be used, and
 * plain names of files inside with so many bytes. */

#include "runtime/checkpoint.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "tests/fuzz/common.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void add(const char *name, const char *text)
{
    int fd = fuzz_file(name);
    fuzz_put(fd, text, strlen(text));
    close(fd);
}

/* before the folder goes, which takes one level of folders along */
static void remove_generation(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/step-7", fuzz_folder());
    file_remove_folder(path);
}

/* makes the folder; returns the index's descriptor */
static int make_generation(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/step-7", fuzz_folder());
    require(!mkdir(path, 0700) && !atexit(remove_generation));
    snprintf(path, sizeof path, "%s/step-7/moment1", fuzz_folder());
    require(!mkdir(path, 0700));
    add("outside", "outside\n");
    add("step-7/model.safetensors", "weights\n");
    add("step-7/moment1/model.safetensors", "moments\n");
    add("step-7/empty", "");
    snprintf(path, sizeof path, "%s/step-7/loop", fuzz_folder());
    require(!symlink("loop", path));
    return fuzz_file("step-7/checkpoint.json");
}

static void write_index(const uint8_t *data, size_t size)
{
    enum { MOST = 1 << 16, HASH = 64 };
    static char text[MOST + HASH];
    static int fd = -1;
    if (fd < 0)
        fd = make_generation();
    size_t n = size - 1;
    require(n <= MOST);
    memcpy(text, data + 1, n);
    if (data[0] % 2 == 0)
        n += (size_t)snprintf(text + n, HASH, ",\n\"hash\": \"%016llx\"}\n", (unsigned long long)hash64(text, n, 0));
    fuzz_put(fd, text, n);
}

/* what the reader has accepted, read once more */
static void check_files(const uint8_t *data, size_t size)
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
        snprintf(path, sizeof path, "%s/step-7/%s", fuzz_folder(), name);
        require(!strstr(name, "..") && name[0] != '/' && !lstat(path, &is) && S_ISREG(is.st_mode));
        require(json_integer_value(json_object_get(file, "bytes")) == is.st_size);
    }
    json_decref(root);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct checkpoint c;
    struct error error = {""};
    char folder[CHECKPOINT_PATH];
    bool found;
    if (size < 2)
        return 0;
    write_index(data, size);
    enum status st = checkpoint_find(fuzz_folder(), &c, folder, &found, &error);
    require(found == (st == STATUS_OK) && found == !error.text[0]);
    if (!found)
        return 0;
    require(c.step == 7 && strlen(c.plan) == 64 && *c.optimizer && c.rates[0] >= 0 && isfinite(c.rates[1]));
    for (int i = 0; c.scaled && i < SCALE_WORDS; i++)
        require(c.scale[i] >= 0 && isfinite(c.scale[i]));
    require(!c.scaled || c.scale[SCALE_SKIPPED] <= 7);
    check_files(data, size);
    return 0;
}
