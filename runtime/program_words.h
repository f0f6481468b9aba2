#ifndef LLMC_PROGRAM_WORDS_H
#define LLMC_PROGRAM_WORDS_H

/* Words, limits and helpers that the checker, the text form and the binary form share; private to program*.c.
 */

#include "runtime/program.h"

#include <stddef.h>

#define PROGRAM_TEXT_VERSION 1

/* Ten times what the largest plan needs; these limits keep index arithmetic far from overflow. */
#define LIMIT_SLOTS 4096u
#define LIMIT_RINGS 4096u
#define LIMIT_BUFFERS (1u << 20)
#define LIMIT_BUCKETS (1u << 16)
#define LIMIT_TENSORS (1u << 20)
#define LIMIT_INSNS (64u << 20)
#define LIMIT_WAITS 16u                 /* of one instruction */
#define LIMIT_BYTES ((uint64_t)1 << 50) /* of the arena, a buffer, a bucket's elements, a dimension */
#define LIMIT_FILE ((uint64_t)1 << 31)  /* bytes of a program or rank file, binary or text */
#define LIMIT_ROLES (1u << 24)

/* characters that no name contains, besides those that are not printable; '~' is printable and excluded, too */
#define PROGRAM_NAME_ENDS " \"#+*=[]~"

#define NSLOT_KINDS 5
#define NINIT_KINDS 3
extern const char *const program_slot_words[NSLOT_KINDS];
extern const char *const program_digit_words[NDIGITS];
extern const char *const program_buffer_words[NBUFFER_KINDS];
extern const char *const program_init_words[NINIT_KINDS];
/* words[i], or "?" beyond n */
const char *program_word(const char *const *words, size_t n, size_t i);

enum job_field_kind { JOB_U64, JOB_U32, JOB_REAL };
#define NJOB_FIELDS 15
struct job_field {
    const char *name;
    enum job_field_kind kind;
    size_t offset;
};
extern const struct job_field program_job_fields[NJOB_FIELDS];

/* the instructions' half of program_check(): requires that the rest of the program has been checked */
enum status program_check_code(const struct program *p, struct error *error);
/* is it a slot whose values are numbers to compute with, rather than ranks or groups? */
bool program_slot_counts(const struct program *p, uint32_t slot);

#endif
