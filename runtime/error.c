/* One sentence about what went wrong; see error.h. */

#include "runtime/error.h"

#include <stdarg.h>
#include <stdio.h>

enum status error_set(struct error *e, enum status status, const char *format, ...)
{
    struct error said;
    va_list ap;
    va_start(ap, format);
    vsnprintf(said.text, sizeof said.text, format, ap);
    va_end(ap);
    *e = said;
    return status;
}
