/* Diagnostics: collected, then sorted and printed once, as text or as JSON.
 *
 * Order: sources in the order in which they were first named, then by position, then by arrival.  The same
 * message at the same place is kept once, so that a value used twice is reported once.
 * Whatever comes from an input file is hostile text: control characters but tab and newline, bytes that are
 * not UTF-8 and direction-changing characters are printed as '?', and a long line is cut to a window around
 * the place. Columns count characters.  The caret line repeats the tabs of the source line and gives wide
 * characters two blanks, so it lines up on any terminal. */

#include "compiler/support/diag.h"

#include "compiler/support/strbuf.h"
#include "compiler/support/vec.h"
#include "runtime/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERRORS_MAX 20
#define WARNINGS_MAX 100
#define LINE_WINDOW 160 /* bytes of a source line that are shown at most */

struct message {
    enum severity severity;
    struct span at, note_at;
    const char *code, *text, *caret, *note, *help;
    size_t order; /* of arrival */
};

struct diag {
    struct arena *arena;
    VEC(struct message) messages;
    VEC(const struct source *) sources; /* by first appearance */
    struct message dropped;             /* takes the completions of a message that is not kept */
    struct message *last;
    int errors, warnings;
    bool progress;
};

struct diag *diag_new(struct arena *a)
{
    struct diag *d = ARENA_NEW(a, struct diag);
    d->arena = a;
    d->last = &d->dropped;
    return d;
}

void diag_show_progress(struct diag *d, bool shown)
{
    d->progress = shown;
}

bool diag_shows_progress(const struct diag *d)
{
    return d->progress;
}

void diag_progress(const struct diag *d, const char *fmt, ...)
{
    if (!d->progress)
        return;
    va_list ap;
    va_start(ap, fmt);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
}

static void note_source(struct diag *d, const struct source *s)
{
    for (size_t i = 0; i < d->sources.n; i++)
        if (d->sources.at[i] == s)
            return;
    vec_push(d->arena, &d->sources, s);
}

static bool already_said(const struct diag *d, struct span at, const char *text)
{
    for (size_t i = 0; i < d->messages.n; i++) {
        const struct message *m = &d->messages.at[i];
        if (m->at.source == at.source && m->at.start == at.start && !strcmp(m->text, text))
            return true;
    }
    return false;
}

static void start(struct diag *d, enum severity severity, struct span at, const char *code, const char *fmt, va_list ap)
{
    struct arena_mark mark = arena_mark(d->arena);
    const char *text = arena_vprintf(d->arena, fmt, ap);
    bool error = severity == SEVERITY_ERROR;
    d->last = &d->dropped;
    if (already_said(d, at, text) || (error ? d->errors++ >= ERRORS_MAX : d->warnings++ >= WARNINGS_MAX)) {
        arena_reset(d->arena, mark);
        return;
    }
    note_source(d, at.source);
    vec_push(d->arena, &d->messages,
             (struct message){.severity = severity, .at = at, .code = code, .text = text, .order = d->messages.n});
    d->last = &d->messages.at[d->messages.n - 1];
}

void diag_error(struct diag *d, struct span at, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    start(d, SEVERITY_ERROR, at, code, fmt, ap);
    va_end(ap);
}

void diag_warning(struct diag *d, struct span at, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    start(d, SEVERITY_WARNING, at, code, fmt, ap);
    va_end(ap);
}

void diag_append(struct diag *d, const struct diag *from)
{
    for (size_t i = 0; i < from->messages.n; i++) {
        const struct message *m = &from->messages.at[i];
        (m->severity == SEVERITY_ERROR ? diag_error : diag_warning)(d, m->at, m->code, "%s", m->text);
        d->last->caret = m->caret;
        d->last->note = m->note;
        d->last->note_at = m->note_at;
        d->last->help = m->help;
    }
}

void diag_caret(struct diag *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    d->last->caret = arena_vprintf(d->arena, fmt, ap);
    va_end(ap);
}

void diag_note(struct diag *d, struct span at, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    d->last->note = arena_vprintf(d->arena, fmt, ap);
    d->last->note_at = at;
    va_end(ap);
}

void diag_help(struct diag *d, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    d->last->help = arena_vprintf(d->arena, fmt, ap);
    va_end(ap);
}

int diag_errors(const struct diag *d)
{
    return d->errors;
}

int diag_warnings(const struct diag *d)
{
    return d->warnings;
}

const char *diag_first(const struct diag *d)
{
    for (size_t i = 0; i < d->messages.n; i++)
        if (d->messages.at[i].severity == SEVERITY_ERROR)
            return d->messages.at[i].text;
    return "";
}

bool diag_has(const struct diag *d, const char *code)
{
    for (size_t i = 0; i < d->messages.n; i++)
        if (d->messages.at[i].severity == SEVERITY_ERROR && !strcmp(d->messages.at[i].code, code))
            return true;
    return false;
}

/* ---- text ---- */

/* Bytes of the UTF-8 character at s (at most n of them), and its code point; 1 and U+FFFD when it is
 * malformed. */
static size_t character(const char *s, size_t n, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char c = (unsigned char)*s;
    size_t length = c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 0;
    *point = length == 1 ? c : c & (0x7fu >> (length ? length : 1));
    for (size_t i = 1; i < length; i++) {
        if (i >= n || ((unsigned char)s[i] & 0xc0) != 0x80)
            length = 0;
        else
            *point = *point << 6 | ((unsigned char)s[i] & 0x3f);
    }
    if (!length || *point < least[length] || *point > 0x10ffff || (*point >= 0xd800 && *point < 0xe000)) {
        *point = 0xfffd;
        return 1;
    }
    return length;
}

static bool printable(uint32_t point)
{
    bool direction = (point >= 0x200b && point <= 0x200f) || (point >= 0x2028 && point <= 0x202e) ||
                     (point >= 0x2060 && point <= 0x206f) || point == 0xfeff;
    return point == '\t' || point == '\n' ||
           (point >= 0x20 && !(point >= 0x7f && point < 0xa0) && point != 0xfffd && !direction);
}

/* Columns of a terminal: East Asian wide characters and pictographs take two (Unicode's EastAsianWidth, in
 * blocks). */
static int columns(uint32_t point)
{
    bool wide = (point >= 0x1100 && point <= 0x115f) || (point >= 0x2e80 && point <= 0xa4cf) ||
                (point >= 0xac00 && point <= 0xd7a3) || (point >= 0xf900 && point <= 0xfaff) ||
                (point >= 0xfe30 && point <= 0xfe6f) || (point >= 0xff00 && point <= 0xff60) ||
                (point >= 0x1f300 && point <= 0x1faff) || (point >= 0x20000 && point <= 0x3fffd);
    bool combining = point >= 0x300 && point <= 0x36f;
    return wide ? 2 : combining ? 0 : 1;
}

static void safe_text(struct strbuf *out, const char *s, size_t n)
{
    uint32_t point;
    for (size_t i = 0, step; i < n; i += step) {
        step = character(s + i, n - i, &point);
        if (printable(point))
            strbuf_bytes(out, s + i, step);
        else
            strbuf_char(out, '?');
    }
}

void source_position(const struct source *s, uint32_t offset, uint32_t *line, uint32_t *column)
{
    size_t end = offset < s->size ? offset : s->size, from = 0;
    *line = *column = 1;
    for (size_t i = 0; i < end; i++)
        if (s->text[i] == '\n') {
            ++*line;
            from = i + 1;
        }
    uint32_t point;
    for (size_t i = from; i < end; i += character(s->text + i, s->size - i, &point))
        ++*column;
}

/* Append blanks under the characters of [from, to): tabs stay tabs. */
static void blanks(struct strbuf *out, const char *text, size_t from, size_t to)
{
    uint32_t point;
    for (size_t i = from; i < to; i += character(text + i, to - i, &point)) {
        character(text + i, to - i, &point);
        if (point == '\t')
            strbuf_char(out, '\t');
        else
            strbuf_repeat(out, ' ', (size_t)(printable(point) ? columns(point) : 1));
    }
}

static size_t width(const char *text, size_t from, size_t to)
{
    size_t n = 0;
    uint32_t point;
    for (size_t i = from; i < to; i += character(text + i, to - i, &point)) {
        character(text + i, to - i, &point);
        n += printable(point) ? (size_t)columns(point) : 1;
    }
    return n;
}

static const char *tint(bool colour, const char *code)
{
    return colour ? code : "";
}

/* The source line, then the caret range under it with the words beside it. */
static void print_excerpt(struct strbuf *out, const struct message *m, uint32_t line, bool colour)
{
    const char *text = m->at.source->text;
    size_t size = m->at.source->size;
    size_t at = m->at.start < size ? m->at.start : size;
    size_t from = at, to = at;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    while (to < size && text[to] != '\n')
        to++;
    if (to > from && text[to - 1] == '\r' && to > at)
        to--;
    size_t end = m->at.length < to - at ? at + m->at.length : to;
    bool cut_left = at - from > LINE_WINDOW / 2 && to - from > LINE_WINDOW;
    if (cut_left)
        from = at - LINE_WINDOW / 2;
    while (cut_left && from < at && ((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    bool cut_right = to - from > LINE_WINDOW;
    if (cut_right) {
        to = from + LINE_WINDOW;
        while (to > at && ((unsigned char)text[to] & 0xc0) == 0x80)
            to--;
        end = end < to ? end : to;
    }
    strbuf_printf(out, "%5u | %s", line, cut_left ? "..." : "");
    safe_text(out, text + from, to - from);
    strbuf_text(out, cut_right ? "...\n" : "\n");
    strbuf_printf(out, "%s | %s", line > 99999 ? "      " : "     ", cut_left ? "   " : "");
    blanks(out, text, from, at);
    size_t n = width(text, at, end);
    strbuf_printf(out, "%s^", tint(colour, m->severity == SEVERITY_ERROR ? "\033[1;31m" : "\033[1;35m"));
    strbuf_repeat(out, '~', n > 1 ? n - 1 : 0);
    strbuf_text(out, tint(colour, "\033[0m"));
    if (m->caret) {
        strbuf_char(out, ' ');
        safe_text(out, m->caret, strlen(m->caret));
    }
    strbuf_char(out, '\n');
}

static void print_place(struct strbuf *out, struct span at, bool column)
{
    uint32_t line, col;
    source_position(at.source, at.start, &line, &col);
    safe_text(out, at.source->name, strlen(at.source->name));
    strbuf_printf(out, ":%u", line);
    if (column)
        strbuf_printf(out, ":%u", col);
    strbuf_text(out, ": ");
}

static void print_message(struct strbuf *out, const struct message *m, bool colour)
{
    bool error = m->severity == SEVERITY_ERROR, echo = m->at.source && !m->at.source->imported;
    if (m->at.source)
        print_place(out, m->at, true);
    strbuf_printf(out, "%s%s:%s ", tint(colour, error ? "\033[1;31m" : "\033[1;35m"), error ? "error" : "warning",
                  tint(colour, "\033[0m"));
    safe_text(out, m->text, strlen(m->text));
    if (!echo && m->caret) {
        strbuf_text(out, "; ");
        safe_text(out, m->caret, strlen(m->caret));
    }
    strbuf_char(out, '\n');
    if (echo) {
        uint32_t line, column;
        source_position(m->at.source, m->at.start, &line, &column);
        print_excerpt(out, m, line, colour);
    }
    if (m->note) {
        strbuf_text(out, "   note: ");
        if (m->note_at.source)
            print_place(out, m->note_at, false);
        safe_text(out, m->note, strlen(m->note));
        strbuf_char(out, '\n');
    }
    if (m->help) {
        strbuf_text(out, "   help: ");
        safe_text(out, m->help, strlen(m->help));
        strbuf_char(out, '\n');
    }
}

/* ---- the collection ---- */

struct sorted {
    const struct message *message;
    size_t source;
};

static int compare(const void *left, const void *right)
{
    const struct sorted *a = left, *b = right;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    if (a->message->at.start != b->message->at.start)
        return a->message->at.start < b->message->at.start ? -1 : 1;
    return a->message->order < b->message->order ? -1 : 1;
}

static struct sorted *sort(const struct diag *d)
{
    struct sorted *s = ARENA_ARRAY(d->arena, struct sorted, d->messages.n);
    for (size_t i = 0; i < d->messages.n; i++) {
        s[i].message = &d->messages.at[i];
        while (d->sources.at[s[i].source] != s[i].message->at.source)
            s[i].source++;
    }
    if (d->messages.n)
        qsort(s, d->messages.n, sizeof *s, compare);
    return s;
}

void diag_print(const struct diag *d, FILE *out, bool colour)
{
    struct strbuf text = {0};
    struct arena_mark mark = arena_mark(d->arena);
    const struct sorted *s = sort(d);
    for (size_t i = 0; i < d->messages.n; i++)
        print_message(&text, s[i].message, colour);
    if (d->errors > ERRORS_MAX)
        strbuf_printf(&text, "too many errors: %d more not shown\n", d->errors - ERRORS_MAX);
    arena_reset(d->arena, mark);
    if (text.length)
        fwrite(text.text, 1, text.length, out);
    strbuf_free(&text);
}

static void json_place(struct strbuf *out, struct span at)
{
    uint32_t line = 0, column = 0;
    if (at.source)
        source_position(at.source, at.start, &line, &column);
    strbuf_json(out, "{'file': %s, 'line': %u, 'column': %u", at.source ? at.source->name : NULL, line, column);
}

/* `fix` is the help, else what stands beside the caret; the other of the two goes to the notes. */
static void json_message(struct strbuf *out, const struct message *m)
{
    const char *caret = m->caret;
    if (caret && !strncmp(caret, "help: ", 6))
        caret += 6;
    json_place(out, m->at);
    strbuf_json(out, ", 'length': %u, 'severity': %s, 'code': %s, 'message': %s, 'notes': [",
                m->at.source ? m->at.length : 0, m->severity == SEVERITY_ERROR ? "error" : "warning", m->code, m->text);
    if (m->note) {
        json_place(out, m->note_at);
        strbuf_json(out, ", 'message': %s}", m->note);
    }
    if (caret && m->help) {
        strbuf_text(out, m->note ? ", " : "");
        json_place(out, m->at);
        strbuf_json(out, ", 'message': %s}", caret);
    }
    strbuf_json(out, "], 'fix': %s}", m->help ? m->help : caret);
}

void diag_print_json(const struct diag *d, FILE *out)
{
    struct strbuf text = {0};
    struct arena_mark mark = arena_mark(d->arena);
    const struct sorted *s = sort(d);
    strbuf_text(&text, "[");
    for (size_t i = 0; i < d->messages.n; i++) {
        strbuf_text(&text, i ? ",\n " : "");
        json_message(&text, s[i].message);
    }
    strbuf_text(&text, "]\n");
    arena_reset(d->arena, mark);
    fwrite(text.text, 1, text.length, out);
    strbuf_free(&text);
}

/* ---- files and words ---- */

static struct source *read_refused(struct diag *d, const char *path, const char *why)
{
    diag_error(d, (struct span){0}, "cannot-read", "cannot read '%s': %s", path, why);
    return NULL;
}

struct source *source_read(struct arena *a, struct diag *d, const char *path, size_t max_bytes)
{
    int fd;
    uint64_t bytes;
    const char *why = file_open(path, &fd, &bytes);
    if (why)
        return read_refused(d, path, why);
    if (bytes > max_bytes || bytes >= UINT32_MAX) {
        close(fd);
        return read_refused(d, path, arena_printf(a, "larger than %zu bytes", max_bytes));
    }
    size_t size = (size_t)bytes, got = 0;
    char *text = arena_alloc(a, size + 1);
    while (got < size) {
        ssize_t n = read(fd, text + got, size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    int error = errno;
    close(fd);
    if (got < size)
        return read_refused(d, path, error ? strerror(error) : "file became shorter");
    struct source *s = ARENA_NEW(a, struct source);
    *s = (struct source){.name = arena_strdup(a, path), .text = text, .size = size};
    return s;
}

/* Optimal string alignment distance (insert, delete, replace, swap neighbours); both words at most NEAR_MAX
 * long. */
#define NEAR_MAX 31
static int distance(const char *a, int na, const char *b, int nb)
{
    int cost[NEAR_MAX + 1][NEAR_MAX + 1];
    for (int i = 0; i <= na; i++)
        for (int j = 0; j <= nb; j++) {
            int best = i ? j ? cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]) : i : j;
            if (i && cost[i - 1][j] + 1 < best)
                best = cost[i - 1][j] + 1;
            if (j && cost[i][j - 1] + 1 < best)
                best = cost[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && cost[i - 2][j - 2] + 1 < best)
                best = cost[i - 2][j - 2] + 1;
            cost[i][j] = best;
        }
    return cost[na][nb];
}

const char *diag_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t length = strlen(word);
    int near = length < 3 ? 1 : length < 6 ? 2 : (int)length / 3 + 1;
    if (!length || length > NEAR_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t other = strlen(candidates[i]);
        if (other > NEAR_MAX)
            continue;
        int apart = distance(word, (int)length, candidates[i], (int)other);
        if (apart <= near && (size_t)apart < length && (size_t)apart < other) {
            near = apart - 1;
            best = candidates[i];
        }
    }
    return best;
}
