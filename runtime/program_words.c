/* Names of the enumerators of program.h, as the text form and messages spell them, and the fields of
 * job_info. */

#include "runtime/program_words.h"

const char *const program_slot_words[NSLOT_KINDS] = {"coord", "first", "peer", "group", "behind"};
const char *const program_digit_words[NDIGITS] = {"tp", "cp", "dp", "pp", "d4", "d5", "d6", "d7"};
const char *const program_buffer_words[NBUFFER_KINDS] = {"step",  "param",   "master",    "moment1", "moment2",
                                                         "block", "metrics", "workspace", "scale"};
const char *const program_init_words[NINIT_KINDS] = {"normal", "ones", "zeros"};

#define FIELD(name, kind)                                                                                              \
    {                                                                                                                  \
#name, kind, offsetof(struct job_info, name)                                                                   \
    }
const struct job_field program_job_fields[NJOB_FIELDS] = {
    FIELD(sequence, JOB_U64),    FIELD(batch, JOB_U64),     FIELD(vocab, JOB_U64),           FIELD(seed, JOB_U64),
    FIELD(steps_total, JOB_U64), FIELD(optimizer, JOB_U32), FIELD(lr_kind, JOB_U32),         FIELD(lr, JOB_REAL),
    FIELD(lr_min, JOB_REAL),     FIELD(beta1, JOB_REAL),    FIELD(beta2, JOB_REAL),          FIELD(lr_warmup, JOB_U64),
    FIELD(lr_decay, JOB_U64),    FIELD(lr_stable, JOB_U64), FIELD(tokens_per_step, JOB_REAL)};
