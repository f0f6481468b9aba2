#include "compiler/import/lines.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\0';
}

bool line_next(struct line *l)
{
    size_t size = l->source->size;
    if (l->next >= size)
        return false;
    l->at = l->next;
    const char *end = memchr(l->source->text + l->at, '\n', size - l->at);
    l->end = end ? (size_t)(end - l->source->text) : size;
    l->next = l->end + 1;
    return true;
}

/* behind the escape sequence at `at` ("\033[4m"), or `at` where there is none */
static size_t skip_escape(const struct line *l, size_t at)
{
    const char *s = l->source->text;
    if (at + 1 >= l->end || s[at] != '\033' || s[at + 1] != '[')
        return at;
    for (at += 2; at < l->end && (s[at] < '@' || s[at] > '~');)
        at++;
    return at < l->end ? at + 1 : at;
}

bool line_word(struct line *l, struct span *word)
{
    const char *s = l->source->text;
    for (;;) {
        size_t behind = skip_escape(l, l->at);
        if (behind == l->at && (l->at >= l->end || !is_blank(s[l->at])))
            break;
        l->at = behind > l->at ? behind : l->at + 1;
    }
    size_t from = l->at;
    while (l->at < l->end && !is_blank(s[l->at]) && skip_escape(l, l->at) == l->at)
        l->at++;
    *word = (struct span){l->source, (uint32_t)from, (uint32_t)(l->at - from)};
    return l->at > from;
}

bool line_word_is(struct span word, const char *text)
{
    return word.length == strlen(text) && !memcmp(word.source->text + word.start, text, word.length);
}

bool line_number(struct span word, uint32_t *value)
{
    uint64_t v = 0;
    if (!word.length || word.length > 10)
        return false;
    for (uint32_t i = 0; i < word.length; i++) {
        char c = word.source->text[word.start + i];
        if (c < '0' || c > '9')
            return false;
        v = v * 10 + (uint64_t)(c - '0');
    }
    *value = (uint32_t)v;
    return v <= UINT32_MAX;
}

struct span line_rest(const struct line *l)
{
    size_t from = l->at, end = l->end;
    while (from < end && is_blank(l->source->text[from]))
        from++;
    while (end > from && is_blank(l->source->text[end - 1]))
        end--;
    return (struct span){l->source, (uint32_t)from, (uint32_t)(end - from)};
}

char *line_copy(struct arena *a, struct span word)
{
    return arena_strndup(a, word.source->text + word.start, word.length);
}
