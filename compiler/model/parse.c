/* The bridge between text and the generated scanner and parser: limits, places and the wording of syntax
 * errors.
 *
 * The text is copied once, because the scanner works in place and wants two zero bytes behind it.
 * After an error the parser resumes behind the next end of statement, so several errors are told per run. */

#include "compiler/model/parse.h"

#include "compiler/support/strbuf.h"
#include "grammar/llm.tab.h"
#include "grammar/llm.lex.h"

#include <string.h>

struct span parse_span(const struct parse *p, struct place at)
{
    return (struct span){p->source, at.start, at.end - at.start};
}

void parse_comment(struct parse *p, struct place at)
{
    struct comment *c = ARENA_NEW(p->arena, struct comment);
    *c = (struct comment){.span = parse_span(p, at), .own_line = true};
    while (c->span.length && strchr(" \t\r", p->source->text[c->span.start + c->span.length - 1]))
        c->span.length--;
    for (uint32_t i = at.start; i > 0 && p->source->text[i - 1] != '\n'; i--)
        if (!strchr(" \t\r", p->source->text[i - 1]))
            c->own_line = false;
    if (p->last_comment)
        p->last_comment->next = c;
    else
        p->tree->comments = c;
    p->last_comment = c;
}

void parse_header(struct parse *p, const char *word, struct place word_at, const char *version, struct place version_at)
{
    p->header = true;
    p->tree->version_span = parse_span(p, version_at);
    if (strcmp(word, "llmc") != 0) {
        diag_error(p->diag, parse_span(p, word_at), "no-header", "a model file starts with 'llmc 1'");
    } else if (strcmp(version, "1") != 0) {
        diag_error(p->diag, parse_span(p, version_at), "version", "language version %s is not known", version);
        diag_caret(p->diag, "this llmc reads version 1");
    }
}

void parse_error_character(struct parse *p, struct place at, const char *text)
{
    unsigned char c = (unsigned char)*text;
    p->parens = 0;
    p->recovering = true;
    if (c < 0x20 || c == 0x7f)
        diag_error(p->diag, parse_span(p, at), "character", "unexpected byte 0x%02x", c);
    else
        diag_error(p->diag, parse_span(p, at), "character", "unexpected character '%s'", text);
}

void parse_error_string(struct parse *p, struct place at)
{
    p->parens = 0;
    p->recovering = true;
    diag_error(p->diag, parse_span(p, at), "string", "string without its closing '\"'");
}

/* `word (name=` : a call written with a blank before its parenthesis */
static bool blank_before_call(const struct parse *p, struct place equals)
{
    const char *s = p->source->text;
    uint32_t i = equals.start;
    while (i > 0 && strchr(" \t", s[i - 1]))
        i--;
    while (i > 0 && (s[i - 1] == '_' || (s[i - 1] >= '0' && s[i - 1] <= '9') ||
                     ((s[i - 1] | 0x20) >= 'a' && (s[i - 1] | 0x20) <= 'z')))
        i--;
    return i > 1 && s[i - 1] == '(' && strchr(" \t", s[i - 2]);
}

/* behind blank lines and comments; one character at least if there is one */
static struct place first_word(const struct source *s)
{
    uint32_t i = 0, end;
    while (i < s->size && strchr(" \t\r\n#", s->text[i])) {
        if (s->text[i] == '#')
            while (i < s->size && s->text[i] != '\n')
                i++;
        else
            i++;
    }
    for (end = i; end < s->size && end - i < 40 && !strchr(" \t\r\n#{", s->text[end]);)
        end++;
    return (struct place){i, end == i && i < s->size ? i + 1 : end};
}

void parse_error_token(struct parse *p, struct place at, const char *found, const char *const *expected, int n)
{
    bool has_text = at.end > at.start && at.end - at.start <= 40 && p->source->text[at.start] != '\n';
    const char *text = arena_strndup(p->arena, p->source->text + at.start, at.end - at.start);
    struct span span = parse_span(p, at);
    if (span.length && p->source->text[at.start] == '\n')
        span.length = 1;
    p->parens = 0;
    p->recovering = true;
    if (!p->header) { /* what is unexpected may stand behind the first word: that one is in the wrong place */
        diag_error(p->diag, parse_span(p, first_word(p->source)), "no-header", "a model file starts with 'llmc 1'");
        return;
    }
    if (has_text)
        diag_error(p->diag, span, "syntax", "unexpected '%s'", text);
    else
        diag_error(p->diag, span, "syntax", "unexpected %s", found);
    if (!strcmp(text, "-")) {
        diag_caret(p->diag, "there are no negative numbers");
    } else if (!strcmp(text, "=") && blank_before_call(p, at)) {
        diag_caret(p->diag, "help: write a call without a blank before '('");
    } else if (n > 4) { /* at the start of a statement */
        bool open = false;
        for (int i = 0; i < n; i++)
            open = open || !strcmp(expected[i], "'}'");
        if (!strcmp(text, "}"))
            diag_caret(p->diag, "no block is open here");
        else if (open && !strcmp(found, "end of file"))
            diag_caret(p->diag, "expected '}'");
    } else if (n) {
        struct strbuf list = {0};
        for (int i = 0; i < n; i++)
            strbuf_printf(&list, "%s%s", !i ? "" : i + 1 < n ? ", " : " or ", expected[i]);
        diag_caret(p->diag, "expected %s", list.text);
        strbuf_free(&list);
    }
}

void parse_error_memory(struct parse *p, struct place at)
{
    diag_error(p->diag, parse_span(p, at), "depth", "nested too deeply");
}

bool parse_depth(struct parse *p, struct span at, uint32_t depth)
{
    if (depth <= AST_DEPTH_MAX)
        return true;
    diag_error(p->diag, at, "depth", "nested more than %d levels deep", AST_DEPTH_MAX);
    return false;
}

const char *parse_string(struct parse *p, const char *text, size_t length)
{
    char *s = arena_alloc(p->arena, length);
    size_t n = 0;
    for (size_t i = 1; i + 1 < length; i++) {
        if (text[i] == '\\' && i + 2 < length)
            i++;
        s[n++] = text[i];
    }
    s[n] = 0;
    return s;
}

static struct ast *parse(struct arena *a, struct diag *d, const struct source *source, int start)
{
    if (source->size > PARSE_SIZE_MAX) {
        diag_error(d, (struct span){0}, "size", "'%s' is larger than %zu bytes", source->name, PARSE_SIZE_MAX);
        return NULL;
    }
    const char *nul = memchr(source->text, 0, source->size);
    if (nul) {
        diag_error(d, (struct span){source, (uint32_t)(nul - source->text), 1}, "character", "unexpected byte 0x00");
        return NULL;
    }
    int before = diag_errors(d);
    struct parse p = {.arena = a,
                      .diag = d,
                      .source = source,
                      .at_newline = true,
                      .start = start,
                      .header = start == START_STATEMENTS};
    p.tree = ARENA_NEW(a, struct ast);
    p.tree->source = source;
    if (source->size >= 3 && !memcmp(source->text, "\xef\xbb\xbf", 3))
        p.offset = 3; /* a byte order mark, which some editors write */

    size_t size = source->size - p.offset;
    char *copy = arena_alloc(a, size + 2);
    memcpy(copy, source->text + p.offset, size);
    yyscan_t scanner;
    if (llm_lex_init_extra(&p, &scanner) != 0)
        arena_exhausted(size);
    if (!llm__scan_buffer(copy, size + 2, scanner))
        arena_exhausted(size);
    llm_parse(scanner, &p);
    llm_lex_destroy(scanner);
    return diag_errors(d) > before ? NULL : p.tree;
}

struct ast *parse_source(struct arena *a, struct diag *d, const struct source *source)
{
    return parse(a, d, source, START_FILE);
}

struct ast *parse_statements(struct arena *a, struct diag *d, const struct source *source)
{
    return parse(a, d, source, START_STATEMENTS);
}
