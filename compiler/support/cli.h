#ifndef LLMC_CLI_H
#define LLMC_CLI_H

/* The command line: one table of commands, one of options.  GNU long options, values by "=" or the next word, "--" ends
 * them.  A mistyped command or option gets a did-you-mean; that and every other misuse is exit code 2. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct options {
    const char *command; /* "plan", "topo show" */
    uint32_t nargs;
    const char *args[32];
    uint32_t nsets, nsweeps;
    const char *sets[64], *sweeps[8];
    const char *output, *stage, *ranks, *filter, *check, *from, *to, *left_out, *format;
    uint64_t top, budget, spares, zoom;
    double price;                     /* dollars per GPU hour; 0 = not given */
    uint32_t rank, stage_index, lost; /* UINT32_MAX = not given */
    bool json, times, all, force, full, execute, quiet, help, version, ascii;
    bool memory, traffic, timeline, schedule, code, formulas;
};

/* false after one message on stderr; help and version are for the caller to act on */
bool cli_parse(int argc, char **argv, struct options *out);
/* usage of one command, or of all with command NULL; false after a message on stderr if there is no such command */
bool cli_help(FILE *out, const char *command);
/* is there such a command? */
bool cli_knows(const char *command);

#endif
