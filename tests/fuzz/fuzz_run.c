/* What llmrun reads besides plans, data, weights and checkpoints: by the first byte its command line, the log that a
 * resumed run goes on with, a prompt, planned times, recorded choices of experts, an address, or an index of files of
 * weights. */

#include "runtime/generate.h"
#include "runtime/log.h"
#include "runtime/planned_times.h"
#include "runtime/rendezvous.h"
#include "runtime/routing.h"
#include "runtime/safetensors.h"
#include "runtime/settings.h"
#include "tests/fuzz/common.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* where inputs are written to, beside two files of weights */
static char path[96];

static void add_weights(const char *name, const char *header)
{
    char bytes[128];
    uint64_t length = strlen(header);
    int fd = fuzz_file(name);
    memcpy(bytes, &length, sizeof length);
    int n = snprintf(bytes + sizeof length, sizeof bytes - sizeof length, "%s12345678", header);
    fuzz_put(fd, bytes, sizeof length + (size_t)n);
    close(fd);
}

static void put(const char *text, size_t n)
{
    static int fd = -1;
    if (fd < 0) {
        add_weights("a", "{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}");
        add_weights("b", "{\"b\": {\"dtype\": \"F32\", \"shape\": [2, 1], \"data_offsets\": [0, 8]}}");
        fd = fuzz_file("model.safetensors.index.json");
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", fuzz_folder());
    }
    fuzz_put(fd, text, n);
}

/* one word of the command line per line */
static void read_settings(char *text)
{
    enum { MOST = 30 };
    char *argv[MOST + 2] = {"llmrun"};
    int argc = 1;
    bool done;
    struct settings o;
    for (char *word = strtok(text, "\n"); word && argc < MOST; word = strtok(NULL, "\n"))
        argv[argc++] = word;
    optind = 0; /* glibc's getopt begins anew */
    if (settings_parse(&o, argc, argv, &done) != STATUS_OK || done || o.calibrate)
        return;
    require(o.dir && (o.data || o.paced || o.generate) && o.watchdog_s >= 0 && o.temperature >= 0);
    require(!o.resume || o.checkpoint.dir);
    require(!(o.mpi && o.cuda) && (o.cuda || !o.nccl));
}

/* What is left of a log is its beginning: whole lines, of the first steps. */
static void read_log(const char *text, size_t n)
{
    uint64_t first = n ? (uint64_t)text[0] % 8 + 1 : 1;
    struct log l;
    struct error error;
    struct stat is;
    put(text, n);
    require(log_open(&l, path, first, 9, true, NULL, &error) == STATUS_OK && log_close(&l, &error) == STATUS_OK);
    require(!stat(path, &is) && (size_t)is.st_size <= n && (!is.st_size || text[is.st_size - 1] == '\n'));
}

static void read_prompt(const char *text, size_t n)
{
    static const uint64_t vocabs[] = {2, 255, 256, PROMPT_BYTES_MOST, PROMPT_BYTES_MOST + 1, 50257, UINT32_MAX};
    struct prompt x;
    struct error error = {""};
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        enum status st = prompt_read(text, vocabs[v], 3, &x, &error);
        require(st == STATUS_OK || *error.text);
        for (uint64_t i = 0; st == STATUS_OK && i < x.n; i++)
            require(x.ids[i] < vocabs[v] && x.n <= n && x.end == x.n + 3);
        free(x.ids);
    }
}

static void read_pace(const char *text, size_t n)
{
    struct program *a = program_new(0, 2), *b = program_new(1, 2);
    struct planned_times x;
    struct error error = {""};
    program_insn(a, OP_ADAMW);
    program_insn(b, OP_ADAMW);
    program_insn(b, OP_SGD);
    put(text, n);
    enum status st = planned_times_read(path, (const struct program *const[]){a, b}, 2, &x, &error);
    require(st != STATUS_OK || (x.step_ns >= 0 && x.ns[0][0] >= 0 && x.ns[1][0] >= 0 && x.ns[1][1] >= 0));
    require(st == STATUS_OK || *error.text);
    planned_times_free(&x);
    program_free(a);
    program_free(b);
}

static void read_routing(const char *text, size_t n)
{
    static const struct routing_shape shape = {.layers = 1, .choices = 2, .sequence = 4, .experts = 6, .samples = 2};
    struct routing r;
    struct error error = {""};
    put(text, n);
    if (routing_open(&r, ROUTING_REPLAY, path, &shape, &error) == STATUS_OK)
        for (uint64_t i = 0; i < shape.samples * shape.sequence; i++) {
            int32_t chosen[] = {1, 2};
            const float values[6] = {0};
            routing_token(&r, routing_at(&r, 0, i / 4, i % 4), chosen, 2, values, 6);
            require(chosen[0] >= 0 && chosen[0] < 6 && chosen[1] >= 0 && chosen[1] < 6);
        }
    else
        require(*error.text);
    routing_close(&r);
}

static void read_shards(const char *text, size_t n)
{
    struct safetensors *s;
    struct error error = {""};
    put(text, n);
    if (safetensors_open(fuzz_folder(), &s, &error) != STATUS_OK) {
        require(*error.text);
        return;
    }
    for (uint32_t i = 0; i < safetensors_count(s); i++)
        require(safetensors_at(s, i)->bytes == 8);
    safetensors_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char host[20];
    uint16_t port;
    if (!size)
        return 0;
    size_t n = size - 1;
    char *text = calloc(n + 1, 1);
    require(text != NULL);
    memcpy(text, data + 1, n);
    switch (data[0] % 7) {
    case 0:
        read_settings(text);
        break;
    case 1:
        read_log(text, n);
        break;
    case 2:
        read_prompt(text, n);
        break;
    case 3:
        read_pace(text, n);
        break;
    case 4:
        read_routing(text, n);
        break;
    case 5:
        if (rendezvous_address(text, host, sizeof host, &port))
            require(strnlen(host, sizeof host) < sizeof host && port > 0);
        break;
    default:
        read_shards(text, n);
        break;
    }
    free(text);
    return 0;
}
