#ifndef LLMC_E2E_H
#define LLMC_E2E_H

/* What the end-to-end tests share: running the real binaries, and reading what they leave behind.
 * Files are read by code of the tests' own, so that a mistake in llmrun's writer cannot hide in its reader. */

#include "tests/draws.h"

#include <stdbool.h>
#include <stddef.h>

enum { E2E_STEPS = 64, E2E_PATH = 512 };

/* one parameter or gradient; values in row-major order */
struct e2e_tensor {
    char name[128];
    size_t n;
    double *values;
};
struct e2e_tensors {
    size_t count;
    struct e2e_tensor *tensor; /* in order of names */
};
/* a run log: the lines that have a loss */
struct e2e_log {
    size_t steps;
    double loss[E2E_STEPS], grad_norm[E2E_STEPS];
};

/* folder of the binaries, e.g. "build" */
const char *e2e_build(void);
/* an empty folder of this name, of the running suite's own, below the build folder; its path, E2E_PATH bytes */
void e2e_folder(char *path, const char *name);
/* run a shell command; exit status.  Output goes to LOG; on failure its end is printed. */
int e2e_command(const char *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* the first `size` - 1 bytes of a file, ended by NUL; "" if unreadable */
void e2e_read_text(const char *path, char *text, size_t size);
/* A shell script with L and R for llmc and llmrun and D for the folder, where its output goes to stdout and stderr; its exit
 * code, 128 + the signal that ended it.  `child N` prints the N-th child of process $P, as cut counts: children stand in the
 * order in which they were made, so that it is rank N - 1 of a run.  `gone PROCESS...` waits until all of them have ended, and
 * fails after five seconds, and where none is named. */
int e2e_shell(const char *dir, const char *script);
/* Asserts that it ends with this code, and that the file `said` of the folder then says this. */
void e2e_expect(const char *dir, const char *script, int code, const char *says);
/* writes a text into a file of the folder */
void e2e_write(const char *dir, const char *name, const char *text);
/* a Llama of four layers, 8 sequences of 32 tokens a step, for one to eight ranks */
extern const char e2e_small_model[];
/* llmc with these words, into files out and err of a folder, plans into its folder plan; the exit code, -1 after a signal */
int e2e_llmc(const char *dir, const char *words);
bool e2e_same_bytes(const char *a, const char *b);

bool e2e_log_read(const char *path, struct e2e_log *log);
/* F32, F64 and BF16 tensors of one safetensors file */
bool e2e_tensors_read(const char *path, struct e2e_tensors *out);
void e2e_tensors_free(struct e2e_tensors *t);

/* Key biases of GPT-2 have a gradient of zero by symmetry (softmax ignores a shift of all scores of a row): what is
 * left is rounding noise, which AdamW blows up to full steps.  Sets those entries to 0 in c_attn.bias ([q | k | v]). */
void e2e_forget_key_biases(struct e2e_tensors *t);
/* the same for biases of keys that nothing turns, under Llama's names */
void e2e_forget_unturned_biases(struct e2e_tensors *t);
/* ||a - b|| / ||b|| of the tensors of this name in both, or of all tensors where name is NULL; 1e300 if sets or sizes differ */
double e2e_difference(const struct e2e_tensors *a, const struct e2e_tensors *b, const char *name);
/* the tensor that differs most, and by how much */
double e2e_worst(const struct e2e_tensors *a, const struct e2e_tensors *b, const char **name);
/* |a - b| / |b| */
double e2e_relative(double a, double b);

#endif
