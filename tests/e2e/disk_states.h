#ifndef LLMC_DISK_STATES_H
#define LLMC_DISK_STATES_H

/* What a disk may hold after a power cut, given the list of changes that a run has made (tests/preload/faults.c).  The disk
 * is one that keeps only what it must: a file's bytes are there once the file has been flushed, a name in a folder once that
 * folder has been.  Of what has not been flushed any part may be there: pages of a file in any choice, and a file of any
 * length; changes of names in the order in which they were made, up to some point that differs from folder to folder, or
 * in any choice.  A rename is there whole or not at all. */

#include <stdbool.h>
#include <stdint.h>

enum disk_kind { DISK_NAME, DISK_DATA, DISK_FLUSH };

struct disk_change {
    enum disk_kind kind;
    uint32_t folder, node;   /* NAME: the folder that has changed, and whose name; else the file or folder */
    char gone[64], here[64]; /* NAME: the name that it had and the one that it has; "" = none */
    bool ignored;            /* FLUSH: as if it had not been made */
};
struct disk_node {
    bool folder;
    char path[128];    /* as it was made, below the root; N for numbers behind a dash: "/ck/step-N.tmp/moment1" */
    char content[600]; /* of a file: where its bytes are */
};
struct disk {
    struct disk_change *change;
    uint32_t nchanges;
    struct disk_node *node; /* 0 is the root */
    uint32_t nnodes;
};

/* list: the file of changes; root: the folder above all of them; whole: where generation step-N is as it was written.
 * false: it has something that is not understood, which has been printed. */
bool disk_read(struct disk *d, const char *list, const char *root, const char *whole);
void disk_free(struct disk *d);

/* what is kept of what might be lost */
enum disk_keep { KEEP_NOTHING, KEEP_ALL, KEEP_SOME, KEEP_PREFIX };
struct disk_choice {
    uint32_t made; /* changes before the cut */
    enum disk_keep names, data;
    uint64_t random;
};
/* makes such a disk as a folder, which must not exist; intact files are links to their contents */
bool disk_make(const struct disk *d, const struct disk_choice *c, const char *to);

#endif
