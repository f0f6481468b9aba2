/* Programs from hostile files.  Input that starts with the file's magic is read as binary, with its header
 * and hashes made to fit, so that the fuzzer gets behind them; all else as text.  Whatever is accepted must
 * pass the checks, have one binary form, and survive print and parse.  New inputs start from random valid
 * programs in either form. */

#include "tests/fuzz/common.h"
#include "tests/runtime/program_parse.h"
#include "tests/runtime/random_program.h"

#include "tests/runtime/random_program.c" /* fuzzers link no other test */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);

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
    static uint64_t fingerprint;
    if (!fingerprint)
        fingerprint = isa_fingerprint();
    if (size > 8 && !memcmp(data, "LLMCPRG", 8)) {
        uint8_t *file = malloc(size);
        require(file != NULL);
        memcpy(file, data, size);
        repair_file(file, size, fingerprint);
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

/* every fourth time the smallest with something of everything */
static struct program *draw(unsigned seed)
{
    struct program *p;
    struct error error;
    if (seed % 4)
        return random_program(seed, seed / 4 % 12);
    require(program_parse(small_program, strlen(small_program), &p, &error) == STATUS_OK);
    return p;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    if (size > 100 && seed % 32)
        return LLVMFuzzerMutate(data, size, room);
    struct program *p = draw(seed / 64);
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
