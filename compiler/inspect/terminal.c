/* What a terminal and the environment allow a view to draw. */

#include "compiler/inspect/show.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const char *set_and_not_empty(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

static bool is_utf8_locale(void)
{
    const char *v = set_and_not_empty("LC_ALL");
    v = v ? v : set_and_not_empty("LC_CTYPE");
    v = v ? v : set_and_not_empty("LANG");
    return v && (strcasestr(v, "utf-8") || strcasestr(v, "utf8"));
}

struct show_options show_detect(FILE *out)
{
    struct show_options o = {.width = 100, .rank = -1, .stage = -1};
    const char *term = getenv("TERM"), *columns = getenv("COLUMNS");
    bool dumb = term && strcmp(term, "dumb") == 0, tty = isatty(fileno(out)) == 1;
    o.colour = tty && !dumb && term && !set_and_not_empty("NO_COLOR");
    o.unicode = !dumb && is_utf8_locale();
    struct winsize size;
    long width = columns ? strtol(columns, NULL, 10) : 0;
    if (tty && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        width = size.ws_col;
    if (width >= 40 && width <= 1000)
        o.width = (uint32_t)width;
    return o;
}
