#include "compiler/import/fields.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

json_t *fields_parse(struct diag *d, const struct source *source)
{
    json_error_t error;
    json_t *root = json_loadb(source->text, source->size, JSON_REJECT_DUPLICATES, &error);
    if (root && json_is_object(root))
        return root;
    uint32_t at = root || error.position < 0 ? 0 : (uint32_t)error.position;
    at = at < source->size ? at : (uint32_t)source->size;
    diag_error(d, (struct span){source, at, 1}, "json", "%s", root ? "no JSON object" : error.text);
    json_decref(root);
    return NULL;
}

struct span fields_place(const struct source *source, const char *name)
{
    size_t n = strlen(name);
    const char *text = source->text;
    for (const char *at = text; (at = strchr(at, '"')); at++) {
        const char *end = at + 1 + n;
        if (strncmp(at + 1, name, n) != 0 || *end != '"')
            continue;
        end++;
        end += strspn(end, " \t\r\n");
        if (*end == ':')
            return (struct span){source, (uint32_t)(at - text), (uint32_t)n + 2};
    }
    return (struct span){source, 0, 1};
}

/* The first of the names that is there and not null; *name becomes that name, else the first. */
static json_t *find(struct fields *f, const char **name)
{
    json_t *found = NULL;
    const char *at = *name, *first = NULL;
    while (*at) {
        size_t n = strcspn(at, "|");
        const char *one = arena_strndup(f->arena, at, n);
        json_t *value = json_object_get(f->object, one);
        first = first ? first : one;
        vec_push(f->arena, &f->known, one);
        if (!found && value && !json_is_null(value)) {
            found = value;
            first = one;
        }
        at += n + (at[n] == '|');
    }
    *name = first;
    return found;
}

static void mistyped(struct fields *f, const char *name, const char *what)
{
    diag_error(f->diag, fields_place(f->source, name), "type", "'%s' should be %s", name, what);
}

struct fields fields_of(struct fields *f, const char *name)
{
    json_t *value = find(f, &name);
    if (value && !json_is_object(value))
        mistyped(f, name, "an object");
    return (struct fields){.arena = f->arena,
                           .diag = f->diag,
                           .source = f->source,
                           .object = json_is_object(value) ? value : NULL,
                           .left_out = f->left_out};
}

bool fields_has(struct fields *f, const char *name)
{
    return find(f, &name) != NULL;
}

double fields_real(struct fields *f, const char *name, double otherwise)
{
    json_t *value = find(f, &name);
    if (!value)
        return otherwise;
    if (json_is_number(value) && isfinite(json_number_value(value)))
        return json_number_value(value);
    mistyped(f, name, "a number");
    return otherwise;
}

uint32_t fields_count(struct fields *f, const char *name, uint32_t otherwise)
{
    json_t *value = find(f, &name);
    if (!value && otherwise == FIELD_REQUIRED)
        diag_error(f->diag, (struct span){f->source, 0, 1}, "missing", "'%s' is missing", name);
    if (value && json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) <= INT32_MAX)
        return (uint32_t)json_integer_value(value);
    if (value)
        mistyped(f, name, "a whole number of 0 to 2,147,483,647");
    return otherwise == FIELD_REQUIRED ? 0 : otherwise;
}

bool fields_flag(struct fields *f, const char *name, bool otherwise)
{
    json_t *value = find(f, &name);
    if (value && !json_is_boolean(value))
        mistyped(f, name, "true or false");
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

const char *fields_word(struct fields *f, const char *name, const char *otherwise)
{
    json_t *value = find(f, &name);
    if (value && !json_is_string(value))
        mistyped(f, name, "a word in quotes");
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

json_t *fields_list(struct fields *f, const char *name)
{
    json_t *value = find(f, &name);
    if (value && !json_is_array(value))
        mistyped(f, name, "a list");
    return json_is_array(value) ? value : NULL;
}

/* is the name among others, with commas or blanks between them? */
static bool among(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; at && *at; at += strcspn(at, ", "), at += strspn(at, ", "))
        if (strcspn(at, ", ") == n && strncmp(at, name, n) == 0)
            return true;
    return false;
}

void fields_error(struct fields *f, const char *name, const char *fmt, ...)
{
    json_t *value = find(f, &name);
    va_list ap;
    va_start(ap, fmt);
    diag_error(f->diag, value ? fields_place(f->source, name) : (struct span){f->source, 0, 1}, "unsupported", "%s",
               arena_vprintf(f->arena, fmt, ap));
    va_end(ap);
}

/* an error with a way on, unless the user has gone that way */
static void unless_left_out(struct fields *f, const char *name, const char *error)
{
    json_t *value = find(f, &name);
    if (!among(f->left_out, name)) {
        fields_error(f, name, "%s", error);
        diag_help(f->diag, "--leave-out %s writes the model without it", name);
        return;
    }
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    vec_push(f->arena, &f->notes,
             arena_printf(f->arena, "left out: %s%s%.60s", name, text ? " " : "", text ? text : ""));
    free(text);
}

void fields_refuse(struct fields *f, const char *name, const char *fmt, ...)
{
    va_list ap;
    find(f, &name);
    va_start(ap, fmt);
    const char *what = arena_vprintf(f->arena, fmt, ap);
    va_end(ap);
    unless_left_out(f, name, arena_printf(f->arena, "'%s' asks for %s, which a model file cannot say", name, what));
}

void fields_ignore(struct fields *f, const char *names)
{
    while (*names) {
        size_t n = strcspn(names, " ");
        vec_push(f->arena, &f->known, arena_strndup(f->arena, names, n));
        names += n + (names[n] == ' ');
    }
}

/* a value by which a field says that it does not apply */
static bool says_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) || (json_is_string(value) && !json_string_length(value)) ||
           (json_is_array(value) && !json_array_size(value)) || (json_is_object(value) && !json_object_size(value));
}

void fields_rest(struct fields *f)
{
    const char *name;
    json_t *value;
    json_object_foreach(f->object, name, value)
    {
        bool known = name[0] == '_' || says_nothing(value);
        for (size_t i = 0; i < f->known.n && !known; i++)
            known = !strcmp(f->known.at[i], name);
        if (!known)
            unless_left_out(f, name, arena_printf(f->arena, "'%s' is not known of such a model", name));
    }
}
