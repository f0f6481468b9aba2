#ifndef LLMC_STATUS_H
#define LLMC_STATUS_H

/* What can go wrong outside of the program, and how it is reported: functions return enum status, TRY() passes it
 * on, main() prints it once. The numbers are the exit codes of both programs. */

enum status {
    STATUS_OK = 0,
    STATUS_NO_PLAN = 1, /* no plan satisfies the constraints, or a check failed */
    STATUS_USAGE = 2,
    STATUS_INPUT = 3,    /* a bad input file, or a changed plan folder */
    STATUS_WORLD = 4,    /* I/O, CUDA, NCCL, MPI; a static bound overflowed */
    STATUS_MISMATCH = 5, /* plan and hosts don't match */
    STATUS_BUG = 70,
    STATUS_STOPPED = 75 /* asked to stop by a signal, after a checkpoint: --resume goes on */
};

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        enum status try_status_ = (call);                                                                              \
        if (try_status_ != STATUS_OK)                                                                                  \
            return try_status_;                                                                                        \
    } while (0)

#endif
