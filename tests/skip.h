#ifndef LLMC_SKIP_H
#define LLMC_SKIP_H

/* A test that lacks something here (a tool, a right, a library) says so and returns, or leaves out the part
 * that needs it.  It is then counted as skipped instead of passed, unless it fails. */

void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
