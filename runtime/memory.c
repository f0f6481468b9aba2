/* Reads /proc/self/smaps: a header line per mapping, its "Pss:" line in KiB. */

#include "runtime/memory.h"

#include <stdio.h>
#include <string.h>

const char *memory_line_name(enum memory_line line)
{
    static const char *const names[NMEMORY] = {"arena", "control", "scratch", "data", "heap", "blas", "code", "stack"};
    return names[line];
}

static enum memory_line classify(const struct memory_range *ranges, uint32_t nranges, uintptr_t start, const char *name)
{
    for (uint32_t i = 0; i < nranges; i++)
        if (start >= (uintptr_t)ranges[i].start && start < (uintptr_t)ranges[i].start + ranges[i].bytes)
            return ranges[i].line;
    if (strncmp(name, "[heap]", 6) == 0)
        return MEMORY_HEAP;
    if (strncmp(name, "[stack]", 7) == 0)
        return MEMORY_STACK;
    return name[0] ? MEMORY_CODE : MEMORY_BLAS;
}

void memory_measure(const struct memory_range *ranges, uint32_t nranges, uint64_t bytes[NMEMORY])
{
    char line[4096];
    FILE *in = fopen("/proc/self/smaps", "r");
    enum memory_line current = MEMORY_CODE;
    memset(bytes, 0, NMEMORY * sizeof *bytes);
    while (in && fgets(line, sizeof line, in)) {
        unsigned long start, end, kib;
        int at = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &start, &end, &at) == 2 && at > 0)
            current = classify(ranges, nranges, start, line + at);
        else if (sscanf(line, "Pss: %lu kB", &kib) == 1)
            bytes[current] += (uint64_t)kib << 10;
    }
    if (in)
        fclose(in);
}

uint64_t memory_total(void)
{
    char line[4096];
    unsigned long kib = 0;
    FILE *in = fopen("/proc/self/smaps_rollup", "r");
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "Pss: %lu kB", &kib) == 1)
            break;
    if (in)
        fclose(in);
    return (uint64_t)kib << 10;
}

/* a number in a file of one line; false for "max" and for files that aren't there */
static bool read_number(const char *path, uint64_t *out)
{
    unsigned long long n;
    FILE *in = fopen(path, "r");
    bool fine = in && fscanf(in, "%llu", &n) == 1;
    if (in)
        fclose(in);
    if (fine)
        *out = n;
    return fine;
}

uint64_t memory_available(void)
{
    char line[256];
    unsigned long long kib;
    uint64_t available = UINT64_MAX, most, used;
    FILE *in = fopen("/proc/meminfo", "r");
    while (in && fgets(line, sizeof line, in))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            available = (uint64_t)kib << 10;
    if (in)
        fclose(in);
    if (read_number("/sys/fs/cgroup/memory.max", &most) && read_number("/sys/fs/cgroup/memory.current", &used) &&
        most > used && most - used < available)
        available = most - used;
    return available;
}

/* the number behind a word at the beginning of a line; false: there is none */
static bool read_named(const char *path, const char *word, uint64_t *out)
{
    char line[256];
    unsigned long long n = 0;
    bool found = false;
    size_t length = strlen(word);
    FILE *in = fopen(path, "r");
    while (in && !found && fgets(line, sizeof line, in))
        found = !strncmp(line, word, length) && line[length] == ' ' && sscanf(line + length, "%llu", &n) == 1;
    if (in)
        fclose(in);
    *out = n;
    return found;
}

/* /proc/self/cgroup has a line per hierarchy, "number:controllers:path"; version 2's has no controllers. */
uint64_t memory_kills(bool *group)
{
    char line[2048], path[2200];
    uint64_t n = 0;
    FILE *in = fopen("/proc/self/cgroup", "r");
    *group = false;
    while (in && !*group && fgets(line, sizeof line, in)) {
        char *kind = strchr(line, ':'), *at = kind ? strchr(kind + 1, ':') : NULL;
        if (!at)
            continue;
        *at++ = 0;
        at[strcspn(at, "\n")] = 0;
        bool first = !strcmp(kind + 1, "memory");
        if (!first && kind[1])
            continue;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/%s", first ? "/memory" : "", strcmp(at, "/") ? at : "",
                 first ? "memory.oom_control" : "memory.events");
        *group = read_named(path, "oom_kill", &n);
    }
    if (in)
        fclose(in);
    if (!*group)
        read_named("/proc/vmstat", "oom_kill", &n);
    return n;
}
