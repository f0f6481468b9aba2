#ifndef LLMC_FILE_H
#define LLMC_FILE_H

/* Files that people name, or that lie in folders that people name: how both programs open, replace and close
 * them.
 *
 * What is read is a regular file, or the regular file that a link leads to.  A folder, FIFO, device or socket
 * in its place is refused before it is opened: opening a FIFO waits for a writer, and opening a device may
 * set something going.
 *
 * What is written replaces a regular file, whole or not at all, by a temporary file beside it; where the name
 * is a symbolic link, the file at its end is the one replaced, or made.  A device or FIFO is written through
 * and stays what it is; a folder or socket is refused.
 *
 * Functions that can fail return why, as the end of a sentence that begins with the path ("it is a FIFO, not
 * a file"), or NULL where they did not; errno is ENOENT where nothing has the name. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { FILE_PATH = 4096 };

/* ---- reading ---- */

/* a regular file's descriptor, and its size unless `bytes` is NULL */
const char *file_open(const char *path, int *fd, uint64_t *bytes);
/* the same as a stream */
const char *file_read(const char *path, FILE **in);
/* for what is read once from front to end: a regular file, "-" for standard input, or a FIFO that somebody
 * writes into, or will within FILE_WAIT_MS */
enum { FILE_WAIT_MS = 2000 };
const char *file_read_stream(const char *path, FILE **in);

/* ---- writing ---- */

struct file_out {
    FILE *stream;
    bool replaces; /* a regular file, by `temporary`: the stream can be positioned.  Else it goes straight to
                      its target */
    char target[FILE_PATH], temporary[FILE_PATH + 32];
};
/* "-" is standard output */
const char *file_create(const char *path, struct file_out *out);
/* all written and in its place, or nothing changed; the stream is closed either way */
const char *file_publish(struct file_out *out);
/* nothing is changed, where a regular file was to be replaced */
void file_discard(struct file_out *out);
/* For what grows while others read it: a regular file is emptied and written in place, a device or FIFO
 * written through; "-" is standard output, which closing leaves open. */
const char *file_append(const char *path, FILE **out);
/* Could file_create() begin?  Nothing is opened or changed. */
const char *file_may_write(const char *path);
/* The same of a name in a folder of ours, where a file is made and moved there: it must be a regular file if
 * it exists; a link is replaced itself, for what it leads to may be others' too. */
const char *file_may_replace(const char *path);
/* not NULL where something that is no regular file has the name; for files that are mapped in place */
const char *file_not_file(const char *path);
/* `path`, or what a link of that name leads to in the end, which need not exist; no slash at the end */
const char *file_resolve(const char *path, char target[FILE_PATH]);
/* not NULL where something that is no folder has the name */
const char *file_not_folder(const char *path);

/* was everything written that went to standard output?  For main(), last. */
const char *file_flush_stdout(void);

#endif
