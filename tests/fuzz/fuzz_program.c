/* Programs from hostile files.  Input that starts with the file's magic is read as binary, with its header
 * and hashes made to fit, so that the fuzzer gets behind them; all else as text.  Whatever is accepted must
 * pass the checks, have one binary form, and survive print and parse.  New inputs start from random valid
 * programs in either form. */

#include "tests/runtime/random_program.h"

#include "tests/runtime/random_program.c" /* fuzzers link no other test */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

static void require(bool fine)
{
    if (!fine)
        abort();
}

/* valid programs do not fit libFuzzer's usual 4096 bytes; another limit may be given */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char limit[] = "-max_len=32768";
    for (int i = 1; i < *argc; i++)
        if (!strncmp((*argv)[i], "-max_len=", 9))
            return 0;
    char **longer = calloc((size_t)*argc + 2, sizeof *longer);
    require(longer != NULL);
    memcpy(longer, *argv, (size_t)*argc * sizeof *longer);
    longer[(*argc)++] = limit;
    *argv = longer;
    return 0;
}

static char *print(const struct program *p, size_t *n)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, n);
    require(f != NULL);
    program_print(p, f);
    fclose(f);
    return text;
}

static void check_accepted(const struct program *p)
{
    struct error error;
    uint8_t *bytes, *again;
    size_t size, again_size, text_size;
    struct program *copy;
    require(program_check(p, &error) == STATUS_OK);
    require(program_encode(p, &bytes, &size) == STATUS_OK);
    if (p->arena_bytes) {
        require(program_decode(bytes, size, &copy, &error) == STATUS_OK);
        program_free(copy);
    }
    char *text = print(p, &text_size);
    require(program_parse(text, text_size, &copy, &error) == STATUS_OK);
    require(program_encode(copy, &again, &again_size) == STATUS_OK);
    require(size == again_size && !memcmp(bytes, again, size));
    program_free(copy);
    free(text);
    free(bytes);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct program *p;
    struct error error = {""};
    enum status s;
    if (size > 8 && !memcmp(data, "LLMCPRG", 8)) {
        uint8_t *file = malloc(size);
        require(file != NULL);
        memcpy(file, data, size);
        repair_file(file, size, isa_fingerprint());
        s = program_decode(file, size, &p, &error);
        if (s == STATUS_OK) {
            uint8_t *again;
            size_t again_size;
            require(program_encode(p, &again, &again_size) == STATUS_OK);
            require(size == again_size && !memcmp(file, again, size));
            free(again);
        }
        free(file);
    } else {
        s = program_parse((const char *)data, size, &p, &error);
    }
    require((s == STATUS_OK) == (p != NULL) && (s == STATUS_OK || *error.text));
    if (s == STATUS_OK) {
        check_accepted(p);
        program_free(p);
    }
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    if (size > 100 && seed % 32)
        return LLVMFuzzerMutate(data, size, room);
    struct program *p = random_program(seed, seed / 32 % 24);
    uint8_t *bytes = NULL;
    size_t n;
    if (seed & 32)
        require(program_encode(p, &bytes, &n) == STATUS_OK);
    else
        bytes = (uint8_t *)print(p, &n);
    if (n <= room) {
        memcpy(data, bytes, n);
        size = n;
    }
    free(bytes);
    program_free(p);
    return size;
}
