#ifndef LLMC_IMPORT_SHELL_H
#define LLMC_IMPORT_SHELL_H

/* Arguments of Megatron-LM from a shell script or a file of arguments, without running anything.
 *
 * What is understood of the shell: words with quotes and \, comments, NAME=value, arrays NAME=( ... ), += of both,
 * export, unset, $NAME, ${NAME}, ${NAME:-default}, ${NAME[@]}, $(( + - * / )), and one command that starts a .py file,
 * or lines of --arguments.  Whatever decides or computes otherwise is an error at its place; what a command prints and
 * what the script itself is given stays open. */

#include "compiler/import/given.h"

/* Fills in the settings: those of the launcher (nnodes, nproc_per_node) as well as the program's.  Where the file has
 * neither, variables say them: WORLD_SIZE, or NNODES or NUM_NODES, and GPUS_PER_NODE.  sets: NAME=VALUE of variables,
 * which beat the file's.  false after an error. */
bool shell_read(struct givens *g, const char *const *sets, size_t nsets);

/* the shell's words, for shell.c and shell_word.c */

struct words {
    struct word {
        const char *text;
        struct span span;
    } * at;
    size_t n, room;
};
struct variable {
    const char *name;
    struct words words; /* one, but of an array */
    bool array, set;    /* set: by the user */
};
struct shell {
    struct givens *g;
    size_t at; /* what of the source has not been read yet */
    VEC(struct variable) variables;
    size_t expanded; /* bytes of all words */
    bool failed;
};

/* an error at bytes of the source, once */
void shell_error(struct shell *sh, size_t at, size_t length, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
struct variable *shell_variable(struct shell *sh, const char *name, size_t length);
/* The word that begins here, with what it expands to: none, one or several.  whole: blanks of an expansion do not split
 * it, as in an assignment. */
void shell_word(struct shell *sh, bool whole, struct words *out);
/* does a word end at this byte? */
bool shell_ends_word(char c);
/* how long the name is that begins here */
size_t shell_name(const char *s);

#endif
