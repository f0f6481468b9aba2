#ifndef LLMC_MEMORY_H
#define LLMC_MEMORY_H

/* What a process's resident memory consists of, by category: from the kernel's own account of every mapping, with
 * each shared page divided among the processes that map it, so that sums over ranks are physical memory. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum memory_line {
    MEMORY_ARENA,
    MEMORY_CONTROL,
    MEMORY_SCRATCH,
    MEMORY_DATA,
    MEMORY_HEAP,
    MEMORY_BLAS,
    MEMORY_CODE,
    MEMORY_STACK,
    NMEMORY
};
struct memory_range {
    const void *start;
    size_t bytes;
    enum memory_line line;
};

const char *memory_line_name(enum memory_line line);
/* Mappings in one of the ranges count as its category; of the others, files count as code, the program break as
 * heap, and anonymous ones as BLAS, since nothing else makes any. */
void memory_measure(const struct memory_range *ranges, uint32_t nranges, uint64_t bytes[NMEMORY]);
/* the process's share of resident memory as one figure, to compare the categories with */
uint64_t memory_total(void);
/* bytes that this machine, or this process's control group, can still provide; UINT64_MAX if unknown */
uint64_t memory_available(void);

/* Processes that the kernel has killed because memory ran out: of this process's control group, or else of the machine
 * (*group false); 0 where nobody counts. */
uint64_t memory_kills(bool *group);

#endif
