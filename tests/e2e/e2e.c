/* Shared by the end-to-end tests: commands, folders, run logs, safetensors files, differences in norm.
 * The reader of safetensors accepts what llmrun and the reference script write, one file per model; it checks sizes
 * against the file and gives up (false) on anything else. */

#include "tests/e2e/e2e.h"

#include <CUnit/CUnit.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

const char e2e_small_model[] =
    "llmc 1\n"
    "model small {\n    vocab 256\n    width 64\n    norm rmsnorm\n    embed tokens\n"
    "    repeat 4 { layer { attn gqa(heads=8, kv=4, rope=10_000); ffn swiglu(176) } }\n    head untied\n}\n"
    "train {\n    sequence 32\n    batch 8 sequences\n    precision fp32\n    optimizer adamw(lr=1e-3)\n}\n"
    "plan {\n    microbatch = 1 sequence\n    recompute none\n    schedule 1f1b\n}\n";

const char *e2e_build(void)
{
    const char *b = getenv("LLMC_BUILD");
    return b && *b ? b : "build";
}

void e2e_folder(char *path, const char *name)
{
    char command[E2E_PATH + 64];
    const struct CU_Suite *suite = CU_get_current_suite();
    snprintf(path, E2E_PATH, "%s/e2e/%s/%s", e2e_build(), suite ? suite->pName : "", name);
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir -p '%s'", path, path);
    if (system(command) != 0)
        fprintf(stderr, "cannot make %s\n", path);
}

int e2e_command(const char *log, const char *format, ...)
{
    char command[4096], whole[5000];
    va_list ap;
    va_start(ap, format);
    vsnprintf(command, sizeof command, format, ap);
    va_end(ap);
    snprintf(whole, sizeof whole, "timeout 300 %s >'%s' 2>&1", command, log);
    int status = system(whole);
    status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (status != 0) {
        printf("\n    %s\n    exit %d:\n", command, status);
        snprintf(whole, sizeof whole, "tail -n 12 '%s' | sed 's/^/    | /'", log);
        fflush(stdout);
        if (system(whole) != 0)
            printf("    (no output)\n");
    }
    return status;
}

void e2e_read_text(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "rb");
    text[0] = 0;
    if (!f)
        return;
    text[fread(text, 1, size - 1, f)] = 0;
    fclose(f);
}

#define FUNCTIONS                                                                                                        \
    "child() { cut -d' ' -f$1 /proc/$P/task/$P/children; }; "                                                           \
    "gone() { end=$(($(date +%%s) + 5)); while left=; for k; do "                                                       \
    "grep -q '^State:[[:space:]]*[^Z[:space:]]' /proc/$k/status 2>/dev/null && left=$k; done; "                         \
    "test -n \"$left\"; do test $(date +%%s) -le $end || return 1; sleep 0.01; done; test $# -gt 0; }; "

int e2e_shell(const char *dir, const char *script)
{
    char whole[8192];
    snprintf(whole, sizeof whole, "L=%s/llmc R=%s/llmrun D='%s'; " FUNCTIONS "{ %s\n} >'%s/stdout' 2>'%s/stderr' </dev/null",
             e2e_build(), e2e_build(), dir, script, dir, dir);
    int status = system(whole);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void e2e_expect(const char *dir, const char *script, int code, const char *says)
{
    char path[E2E_PATH + 32], text[1 << 14];
    int ended = e2e_shell(dir, script);
    snprintf(path, sizeof path, "%s/said", dir);
    e2e_read_text(path, text, sizeof text);
    CU_ASSERT_EQUAL(ended, code);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, says));
    if (ended != code || !strstr(text, says))
        printf("\n    %s\n    exit %d, wanted %d and: %s\n    said: %.1500s\n", script, ended, code, says, text);
}

void e2e_write(const char *dir, const char *name, const char *text)
{
    char path[E2E_PATH + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "w");
    CU_ASSERT_FATAL(out && fputs(text, out) >= 0 && fclose(out) == 0);
}

int e2e_llmc(const char *dir, const char *words)
{
    char command[4096];
    snprintf(command, sizeof command, "D='%s'; timeout 600 %s/llmc %s %s >\"$D/out\" 2>\"$D/err\" </dev/null", dir,
             e2e_build(), words, strncmp(words, "plan ", 5) ? "" : "-o \"$D/plan\"");
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool e2e_same_bytes(const char *a, const char *b)
{
    char command[2 * E2E_PATH + 32];
    snprintf(command, sizeof command, "cmp -s '%s' '%s'", a, b);
    return system(command) == 0;
}

bool e2e_log_read(const char *path, struct e2e_log *log)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    log->steps = 0;
    while (f && log->steps < E2E_STEPS && fgets(line, sizeof line, f)) {
        json_t *o = json_loads(line, 0, NULL);
        json_t *loss = json_object_get(o, "loss"), *norm = json_object_get(o, "grad_norm");
        if (json_is_number(loss) && json_is_number(norm)) {
            log->loss[log->steps] = json_number_value(loss);
            log->grad_norm[log->steps++] = json_number_value(norm);
        }
        json_decref(o);
    }
    if (f)
        fclose(f);
    return log->steps > 0;
}

/* element i of a tensor of this dtype; size of an element, or 0 for a dtype not known here */
static size_t read_element(const char *dtype, const uint8_t *data, size_t i, double *value)
{
    if (!strcmp(dtype, "F64")) {
        if (value)
            memcpy(value, data + 8 * i, 8);
        return 8;
    }
    float f = 0;
    size_t size = !strcmp(dtype, "F32") ? 4 : !strcmp(dtype, "BF16") ? 2 : 0;
    if (value && size) {
        memcpy((char *)&f + 4 - size, data + size * i, size); /* bf16: the high half of an fp32; little endian */
        *value = (double)f;
    }
    return size;
}

static bool read_tensor(const char *name, const json_t *entry, const uint8_t *data, size_t data_size, struct e2e_tensor *t)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *range = json_object_get(entry, "data_offsets");
    json_int_t begin = json_integer_value(json_array_get(range, 0)), end = json_integer_value(json_array_get(range, 1));
    if (!dtype || begin < 0 || end < begin || (size_t)end > data_size || strlen(name) >= sizeof t->name)
        return false;
    size_t n = 1, size = read_element(dtype, NULL, 0, NULL);
    for (size_t i = 0; i < json_array_size(shape); i++)
        n *= (size_t)json_integer_value(json_array_get(shape, i));
    if (!size || n * size != (size_t)(end - begin))
        return false;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->n = n;
    t->values = malloc((n ? n : 1) * sizeof *t->values);
    for (size_t i = 0; i < n; i++)
        read_element(dtype, data + begin, i, &t->values[i]);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct e2e_tensor *)a)->name, ((const struct e2e_tensor *)b)->name);
}

static bool read_entries(json_t *header, const uint8_t *data, size_t data_size, struct e2e_tensors *out)
{
    const char *name;
    json_t *entry;
    out->tensor = calloc(json_object_size(header) + 1, sizeof *out->tensor);
    json_object_foreach (header, name, entry) {
        if (!strcmp(name, "__metadata__"))
            continue;
        if (!read_tensor(name, entry, data, data_size, &out->tensor[out->count]))
            return false;
        out->count++;
    }
    qsort(out->tensor, out->count, sizeof *out->tensor, by_name);
    return out->count > 0;
}

bool e2e_tensors_read(const char *path, struct e2e_tensors *out)
{
    *out = (struct e2e_tensors){0};
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0 || st.st_size < 8) {
        if (f)
            fclose(f);
        return false;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *bytes = malloc(size);
    uint64_t header_size = 0;
    bool ok = fread(bytes, 1, size, f) == size;
    fclose(f);
    memcpy(&header_size, bytes, 8);
    ok = ok && header_size <= size - 8;
    json_t *header = ok ? json_loadb((const char *)bytes + 8, header_size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    ok = header && read_entries(header, bytes + 8 + header_size, size - 8 - header_size, out);
    json_decref(header);
    free(bytes);
    return ok;
}

void e2e_tensors_free(struct e2e_tensors *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->tensor[i].values);
    free(t->tensor);
    *t = (struct e2e_tensors){0};
}

void e2e_forget_key_biases(struct e2e_tensors *t)
{
    for (size_t i = 0; i < t->count; i++) {
        struct e2e_tensor *x = &t->tensor[i];
        if (strstr(x->name, ".c_attn.bias"))
            memset(x->values + x->n / 3, 0, x->n / 3 * sizeof *x->values);
    }
}

void e2e_forget_unturned_biases(struct e2e_tensors *t)
{
    for (size_t i = 0; i < t->count; i++) {
        if (strstr(t->tensor[i].name, ".k_proj.bias"))
            memset(t->tensor[i].values, 0, t->tensor[i].n * sizeof *t->tensor[i].values);
    }
}

double e2e_difference(const struct e2e_tensors *a, const struct e2e_tensors *b, const char *name)
{
    if (a->count != b->count)
        return 1e300;
    double difference = 0, norm = 0;
    for (size_t i = 0; i < b->count; i++) {
        const struct e2e_tensor *x = &a->tensor[i], *y = &b->tensor[i];
        if (strcmp(x->name, y->name) != 0 || x->n != y->n)
            return 1e300;
        for (size_t j = 0; (!name || !strcmp(name, y->name)) && j < y->n; j++) {
            if (!isfinite(x->values[j]))
                return 1e300;
            difference += (x->values[j] - y->values[j]) * (x->values[j] - y->values[j]);
            norm += y->values[j] * y->values[j];
        }
    }
    return norm > 0 ? sqrt(difference / norm) : difference > 0 ? 1e300 : 0;
}

double e2e_worst(const struct e2e_tensors *a, const struct e2e_tensors *b, const char **name)
{
    double worst = 0;
    *name = "(none)";
    for (size_t i = 0; i < b->count; i++) {
        double d = e2e_difference(a, b, b->tensor[i].name);
        if (d > worst) {
            worst = d;
            *name = b->tensor[i].name;
        }
    }
    return a->count == b->count ? worst : 1e300;
}

double e2e_relative(double a, double b)
{
    return isfinite(a) ? fabs(a - b) / fabs(b) : 1e300;
}
