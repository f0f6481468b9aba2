#include "runtime/sentence.h"

#include <stdarg.h>
#include <stdio.h>

void say(struct sentence *s, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(s->out + s->n, s->size - s->n, format, ap);
    va_end(ap);
    s->n += n < 0 ? 0 : (size_t)n;
    s->n = s->n < s->size ? s->n : s->size - 1;
}

void say_rank_of(struct sentence *s, uint32_t rank, const char *host)
{
    say(s, "rank %u", rank);
    if (host)
        say(s, " on %s", host);
}
