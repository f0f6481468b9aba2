#ifndef LLMC_WATCH_VIEW_H
#define LLMC_WATCH_VIEW_H

/* What the view of --watch says, as lines of text. */

#include "runtime/folder.h"
#include "runtime/log.h"
#include "runtime/planned.h"
#include "runtime/waits.h"

enum { VIEW_WIDTH = 512, VIEW_LINES = 64 };

struct view {
    struct log_step step; /* the last one that rank 0 has told */
    uint64_t steps;
    const struct ranks *ranks;
    const char (*hosts)[WORLD_HOST]; /* by rank, or NULL */
    struct planned planned;
    struct waited *waited; /* by rank; steps 0: not known */
    double *scratch;       /* as many as there are ranks */
    /* of the rank of this host that has most memory; 0: not known */
    uint64_t resident_bytes, arena_bytes;
    uint32_t fullest;
};
struct view_lines {
    uint32_t n;
    bool strong[VIEW_LINES]; /* what is not as planned */
    char text[VIEW_LINES][VIEW_WIDTH + 1];
};

/* one line */
void view_short(const struct view *v, char out[VIEW_WIDTH]);
/* at most `rows` lines of at most `width` columns, a row for each rank, or where these are too many for each role */
void view_draw(const struct view *v, uint32_t width, uint32_t rows, struct view_lines *out);

#endif
