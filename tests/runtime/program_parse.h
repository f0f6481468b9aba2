#ifndef LLMC_TEST_PROGRAM_PARSE_H
#define LLMC_TEST_PROGRAM_PARSE_H

/* Programs as text, read back: parse(print(p)) encodes to the same bytes. */

#include "runtime/program.h"

/* STATUS_INPUT and one sentence that names the line, where the text is not a program that passes program_check() */
enum status program_parse(const char *text, size_t size, struct program **p, struct error *error);

#endif
