#ifndef LLMC_FILE_H
#define LLMC_FILE_H

/* Files that users name, or that are in folders that users name: how both programs open, replace and close them.
 *
 * Only a regular file is read, or the regular file that a link leads to.  A folder, FIFO, device or socket in its
 * place is refused before it is opened: opening a FIFO waits for a writer, and opening a device may have side
 * effects.
 *
 * Writing replaces a regular file completely or not at all, by way of a temporary file beside it; if the name is a
 * symbolic link, the file that it leads to is replaced or made.  A device or FIFO is written through and stays what
 * it is; a folder or socket is refused.
 *
 * Functions that can fail return the reason, as the end of a sentence that begins with the path ("it is a FIFO, not
 * a file"), or NULL on success; errno is ENOENT if nothing has the name. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { FILE_PATH = 4096 };

/* ---- reading ---- */

/* a regular file's descriptor, and its size unless `bytes` is NULL */
const char *file_open(const char *path, int *fd, uint64_t *bytes);
/* the same as a stream */
const char *file_read(const char *path, FILE **in);
/* For input that is read once from front to end: a regular file, "-" for standard input, or a FIFO that somebody
 * writes into, or will within FILE_WAIT_MS. */
enum { FILE_WAIT_MS = 2000 };
const char *file_read_stream(const char *path, FILE **in);

/* ---- writing ---- */

struct file_out {
    FILE *stream;
    /* a regular file is replaced by `temporary`, and the stream is seekable; otherwise the stream writes straight to
     * its target */
    bool replaces;
    char target[FILE_PATH], temporary[FILE_PATH + 32];
};
/* "-" is standard output */
const char *file_create(const char *path, struct file_out *out);
/* Puts the complete file in its place, or changes nothing; the stream is closed either way. */
const char *file_publish(struct file_out *out);
/* discards the output: a regular file that was to be replaced is unchanged */
void file_discard(struct file_out *out);
/* For output that grows while others read it: a regular file is truncated and written in place, a device or FIFO is
 * written through; "-" is standard output, which stays open when the stream is closed. */
const char *file_append(const char *path, FILE **out);
/* Opens a regular file that has grown so to go on from offset `at`; what is behind it is lost. */
const char *file_continue(const char *path, uint64_t at, FILE **out);
/* Takes a file, made where it is not there, for this process and those that it forks, until all of them have closed
 * *out or ended.  *taken: another process has it, and *out is NULL; *out where a file system knows no locks is one
 * that keeps nobody out, and the reason is returned as well. */
const char *file_lock(const char *path, FILE **out, bool *taken);
/* Could file_create() succeed?  Opens and changes nothing. */
const char *file_may_write(const char *path);
/* The same for a name in one of our folders, into which a finished file is moved: it must be a regular file if it
 * exists; a link itself is replaced, since the file that it leads to may be used by others. */
const char *file_may_replace(const char *path);
/* not NULL if the name exists but is not a regular file; for files that are mapped in place */
const char *file_not_file(const char *path);
/* resolves `path` through links to the final name, which need not exist; no slash at the end */
const char *file_resolve(const char *path, char target[FILE_PATH]);
/* the path of a file in the folder of this program, cut where `size` is too small */
void file_beside_program(const char *name, char *path, size_t size);
/* not NULL if the name exists but is not a folder */
const char *file_not_folder(const char *path);

/* ---- whole folders that are ours ---- */

/* gives a file or folder another name, in place of what has that name */
const char *file_move(const char *from, const char *to);
/* makes a folder, durably, if it is not there */
const char *file_make_folder(const char *path);
/* makes the names in a folder durable */
const char *file_flush_folder(const char *path);
/* removes a folder with its files and the files of its own folders, or what else has its name, if it is there; links
 * are not followed */
const char *file_remove_folder(const char *path);

/* Standard streams that were closed stay so, but their numbers are no longer free: else the next file that is opened
 * would get what is printed. */
void file_guard_streams(void);
/* was everything printed on standard output written?  To be called last in main(). */
const char *file_flush_stdout(void);

#endif
