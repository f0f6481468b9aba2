/* placeholder while being written */
#include "runtime/cuda/gang.h"
const struct meet_ops *meet_nccl(void) { return meet_d2d(); }
