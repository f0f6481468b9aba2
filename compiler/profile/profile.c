/* Profiles: the declared parameters, the reader of their text form, and those built in (builtin.inc is made
 * from
 * *.profile by the Makefile, one string literal per line).  A value outside its declared bounds is refused.
 */

#include "compiler/profile/profile.h"

#include <stdlib.h>
#include <string.h>

static const struct profile_param params[] = {
#define PARAM(name, value, low, high, meaning) {#name, meaning, offsetof(struct profile, name), value, low, high},
#include "compiler/profile/profile.def"
#undef PARAM
};
#define NPARAMS (sizeof params / sizeof params[0])

struct builtin {
    const char *name, *text;
};
static const struct builtin builtins[] = {
#include "compiler/profile/builtin.inc"
};
#define NBUILTINS (sizeof builtins / sizeof builtins[0])

const struct profile_param *profile_params(size_t *n)
{
    *n = NPARAMS;
    return params;
}

const struct profile_param *profile_param(const char *name)
{
    for (size_t i = 0; i < NPARAMS; i++)
        if (!strcmp(params[i].name, name))
            return &params[i];
    return NULL;
}

/* one line without its newline; text: NUL-terminated copy */
static bool parse_line(struct profile *p, char *text, const char **why)
{
    text[strcspn(text, "#")] = 0;
    char *rest, *name = strtok_r(text, " \t\r", &rest);
    if (!name)
        return true;
    char *number = strtok_r(NULL, " \t\r", &rest), *end = NULL;
    const struct profile_param *at = profile_param(name);
    if (!at) {
        *why = "unknown parameter";
        return false;
    }
    double value = number ? strtod(number, &end) : 0;
    if (!number || end == number || *end || strtok_r(NULL, " \t\r", &rest)) {
        *why = "a parameter needs one number";
        return false;
    }
    if (!(value >= at->low && value <= at->high)) {
        *why = "value outside the parameter's bounds";
        return false;
    }
    *PROFILE_PARAM(p, at) = value;
    return true;
}

bool profile_parse(struct profile *p, const char *text, size_t size, unsigned *line, const char **why)
{
    for (size_t i = 0; i < NPARAMS; i++)
        *PROFILE_PARAM(p, &params[i]) = params[i].value;
    *line = 0;
    for (size_t at = 0; at < size;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;
        char copy[256];
        ++*line;
        if (length >= sizeof copy || memchr(text + at, 0, length)) {
            *why = "line too long or not text";
            return false;
        }
        memcpy(copy, text + at, length);
        copy[length] = 0;
        if (!parse_line(p, copy, why))
            return false;
        at += length + 1;
    }
    return true;
}

bool profile_find(struct profile *p, const char *name)
{
    unsigned line;
    const char *why;
    for (size_t i = 0; i < NBUILTINS; i++)
        if (!strcmp(builtins[i].name, name))
            return profile_parse(p, builtins[i].text, strlen(builtins[i].text), &line, &why);
    return false;
}

void profile_adjust(struct profile *p, const struct profile_adjust *adjusts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *PROFILE_PARAM(p, adjusts[i].param) = adjusts[i].value;
}

const char *profile_name(size_t i)
{
    return i < NBUILTINS ? builtins[i].name : NULL;
}
