#ifndef LLMC_TESTS_SHOT_H
#define LLMC_TESTS_SHOT_H

/* A command run by a shell in the root of the tree, with L and R for llmc and llmrun, M and C for the tiny Llama and its
 * cluster, D for a folder of the test; and what it said. */

struct shot {
    int code;
    char out[1 << 16], err[1 << 14];
};

void shoot(struct shot *s, const char *dir, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* the command ends with this code and says this on stderr (NULL = nothing); failures leave stdout empty */
void expect(struct shot *s, const char *dir, const char *command, int code, const char *says);

#endif
