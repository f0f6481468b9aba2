/* Statements of shell scripts as people keep Megatron-LM's arguments in them; see shell.h. */

#include "compiler/import/shell.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* commands that change no variable and give no arguments */
static const char *const harmless[] = {"mkdir",      "cd",     "echo",  "printf", "set", "ulimit", "sleep",
                                       "date",       "pwd",    "ls",    "rm",     "cp",  "touch",  "wait",
                                       "exit",       "trap",   "tee",   "chmod",  "pip", "conda",  "hostname",
                                       "nvidia-smi", "module", "umask", "true",   ":"};
/* words that decide, or that bring in what is not in the file */
static const char *const decisive[] = {"if",    "then", "else",  "elif", "fi",   "for",    "while",
                                       "until", "do",   "done",  "case", "esac", "select", "function",
                                       "{",     "}",    "[[",    "[",    "test", "eval",   "source",
                                       ".",     "read", "shift", "let",  "!",    "getopts"};

static bool is_in(const char *const *list, size_t n, const char *word)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(list[i], word))
            return true;
    return false;
}

static const char *text_of(const struct shell *sh)
{
    return sh->g->source->text;
}

static void skip_comment(struct shell *sh)
{
    sh->at += strcspn(text_of(sh) + sh->at, "\n");
}

/* blanks and joined lines; with lines, also ends of lines and comments */
static void skip_blanks(struct shell *sh, bool lines)
{
    for (const char *s = text_of(sh); s[sh->at]; sh->at++) {
        char c = s[sh->at];
        if (c == '\\' && (s[sh->at + 1] == '\n' || (s[sh->at + 1] == '\r' && s[sh->at + 2] == '\n'))) {
            sh->at += s[sh->at + 1] == '\r' ? 2 : 1;
        } else if (lines && c == '#') {
            skip_comment(sh);
            sh->at -= !s[sh->at];
        } else if (c != ' ' && c != '\t' && c != '\r' && !(lines && (c == '\n' || c == ';'))) {
            return;
        }
    }
}

/* ---- assignments ---- */

/* NAME= or NAME+= begins here: how long that is, else 0 */
static size_t assigns(const char *s)
{
    size_t n = shell_name(s);
    if (n && s[n] == '=')
        return n + 1;
    return n && s[n] == '+' && s[n + 1] == '=' ? n + 2 : 0;
}

static void array(struct shell *sh, struct words *out)
{
    size_t from = sh->at++;
    while (!sh->failed) {
        skip_blanks(sh, true);
        char c = text_of(sh)[sh->at];
        if (c == ')')
            break;
        if (!c || shell_ends_word(c)) {
            shell_error(sh, c ? sh->at : from, 1, c ? "'%c' cannot stand in an array" : "the array is not closed", c);
            break;
        }
        shell_word(sh, false, out);
    }
    sh->at += !sh->failed;
}

static void assign(struct shell *sh, size_t length)
{
    const char *s = text_of(sh);
    bool more = s[sh->at + length - 2] == '+';
    const char *name = arena_strndup(sh->g->arena, s + sh->at, length - (more ? 2 : 1));
    struct words w = {0};
    size_t from = sh->at;
    sh->at += length;
    bool is_array = s[sh->at] == '(';
    if (is_array)
        array(sh, &w);
    else
        shell_word(sh, true, &w);
    struct variable *v = shell_variable(sh, name, strlen(name)), fresh = {.name = name, .array = is_array};
    if (!is_array && !w.n)
        vec_push(sh->g->arena, &w, (struct word){"", {sh->g->source, (uint32_t)from, (uint32_t)length}});
    if (v && v->set)
        return;
    if (!v) {
        vec_push(sh->g->arena, &sh->variables, fresh);
        v = &sh->variables.at[sh->variables.n - 1];
    }
    if (more && !is_array && v->words.n) {
        struct word *last = &v->words.at[0];
        sh->expanded += strlen(last->text) + strlen(w.at[0].text);
        if (sh->expanded > GIVEN_MOST_BYTES)
            shell_error(sh, from, length, "the script expands to more than %d MiB", GIVEN_MOST_BYTES >> 20);
        else
            last->text = arena_printf(sh->g->arena, "%s%s", last->text, w.at[0].text);
        return;
    }
    v->array |= is_array;
    if (!more)
        v->words = w;
    for (size_t i = 0; more && i < w.n; i++)
        vec_push(sh->g->arena, &v->words, w.at[i]);
}

/* ---- commands ---- */

static bool is_flag(const char *text)
{
    return text[0] == '-' && text[1] == '-' && isalpha((unsigned char)text[2]);
}

/* settings from the words; launcher: only what says how many ranks there are */
static void take(struct shell *sh, const struct word *w, size_t n, bool launcher)
{
    struct givens *g = sh->g;
    for (size_t i = 0; i < n && !sh->failed;) {
        const char *text = w[i].text, *value = strchr(text, '=');
        if (!is_flag(text)) {
            if (!launcher)
                shell_error(sh, w[i].span.start, w[i].span.length, "'%.60s' is no argument: arguments begin with --",
                            text);
            i++;
            continue;
        }
        size_t length = value ? (size_t)(value - text) : strlen(text);
        const char *key = arg_key(g->arena, text, length);
        bool wanted = !launcher || !strcmp(key, "nnodes") || !strcmp(key, "nproc_per_node");
        struct given *x = wanted ? given_add(g, arena_strndup(g->arena, text, length), key, w[i].span) : NULL;
        if (x && value)
            given_value(g, x, value + 1);
        for (i++; i < n && !is_flag(w[i].text) && !value; i++)
            if (x && (!launcher || !x->n))
                given_value(g, x, w[i].text);
        if (x)
            x->bare = !x->n;
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* what is unset here says nothing from here on, unless --set says it */
static void unset(struct shell *sh, const struct word *names, size_t n)
{
    for (size_t i = 0; i < n && strcmp(names[0].text, "-f"); i++) {
        struct variable *v = shell_variable(sh, names[i].text, strlen(names[i].text)), none = {.name = names[i].text};
        if (!v)
            vec_push(sh->g->arena, &sh->variables, none);
        else if (!v->set)
            *v = none;
    }
}

struct commands {
    struct words plain; /* arguments on lines of their own */
    bool started;
};

static void command(struct shell *sh, const struct words *w, struct commands *c)
{
    size_t first = w->n && !strcmp(w->at[0].text, "exec"), script = first;
    if (first >= w->n)
        return;
    const struct word *head = &w->at[first];
    while (script < w->n && !ends_with(w->at[script].text, ".py"))
        script++;
    if (is_flag(head->text)) {
        for (size_t i = 0; i < w->n; i++)
            vec_push(sh->g->arena, &c->plain, w->at[i]);
    } else if (script < w->n && c->started) {
        shell_error(sh, head->span.start, head->span.length, "a second command that starts a .py file");
    } else if (script < w->n) {
        c->started = true;
        take(sh, head, script - first, true);
        take(sh, &w->at[script + 1], w->n - script - 1, false);
    } else if (!strcmp(head->text, "unset")) {
        unset(sh, head + 1, w->n - first - 1);
    } else if (!is_in(harmless, ARRAY_LEN(harmless), head->text)) {
        shell_error(sh, head->span.start, head->span.length,
                    "what '%.60s' does is not known here: write the command that starts the .py file, or its arguments",
                    strchr(head->text, GIVEN_OPEN) ? "this" : head->text);
    }
}

/* over `> file`, `2>&1`, `< file` */
static void redirection(struct shell *sh, struct words *w)
{
    const char *s = text_of(sh);
    struct words unused = {0};
    if (!strncmp(s + sh->at, "<<", 2) || !strncmp(s + sh->at, "<(", 2)) {
        shell_error(sh, sh->at, 2, "'%.2s' is not read here", s + sh->at);
        return;
    }
    if (w->n && sh->at && isdigit((unsigned char)s[sh->at - 1]) && strlen(w->at[w->n - 1].text) == 1)
        w->n--;
    sh->at += strspn(s + sh->at, "<>&");
    skip_blanks(sh, false);
    shell_word(sh, true, &unused);
}

/* the name of a keyword that stands here, or NULL */
static const char *keyword(const struct shell *sh)
{
    const char *s = text_of(sh) + sh->at;
    for (size_t i = 0; i < ARRAY_LEN(decisive); i++) {
        size_t n = strlen(decisive[i]);
        if (!strncmp(s, decisive[i], n) && shell_ends_word(s[n]))
            return decisive[i];
    }
    size_t n = shell_name(s);
    return *s == '(' || (n && s[n] == '(') ? "(" : NULL;
}

static void statement(struct shell *sh, struct commands *c)
{
    static const char *const declares[] = {"export", "declare", "local", "readonly"};
    const char *s = text_of(sh), *word = keyword(sh);
    struct words w = {0};
    bool declaring = false;
    if (word) {
        shell_error(sh, sh->at, strlen(word), "'%s': what a script decides or brings in while it runs is not read",
                    word);
        diag_help(sh->g->diag, "write the arguments that come of it");
        return;
    }
    while (!sh->failed) {
        skip_blanks(sh, false);
        char at = s[sh->at];
        size_t length = w.n ? 0 : assigns(s + sh->at);
        if (!at || at == '\n' || at == ';' || at == '|' || (at == '&' && s[sh->at + 1] != '>'))
            break;
        if (at == '#') {
            skip_comment(sh);
        } else if (at == '<' || at == '>' || at == '&') {
            redirection(sh, &w);
        } else if (shell_ends_word(at)) {
            shell_error(sh, sh->at, 1, "'%c' is not read here", at);
        } else if (length) {
            assign(sh, length);
        } else {
            shell_word(sh, false, &w);
            bool declares_now = w.n == 1 && is_in(declares, ARRAY_LEN(declares), w.at[0].text);
            declaring |= declares_now;
            if (declaring) /* names without values, and options */
                w.n = 0;
        }
    }
    sh->at += strspn(s + sh->at, "|&;");
    if (!sh->failed)
        command(sh, &w, c);
}

/* ---- variables that say how many ranks there are ---- */

static bool world(struct shell *sh, const char *variable, const char *key, bool only_set)
{
    const struct variable *v = shell_variable(sh, variable, strlen(variable));
    if (!v || v->words.n != 1 || (only_set && !v->set))
        return false;
    const char *value = v->words.at[0].text;
    if (!*value || strspn(value, "0123456789") != strlen(value))
        return false;
    struct given *x = given_add(sh->g, v->name, key, v->words.at[0].span);
    given_value(sh->g, x, value);
    x->set = v->set;
    return true;
}

static bool says(const struct givens *g, const char *key)
{
    for (size_t i = 0; i < g->all.n; i++)
        if (!strcmp(g->all.at[i].key, key))
            return true;
    return false;
}

static void ranks(struct shell *sh)
{
    if (world(sh, "WORLD_SIZE", "world_size", true) || says(sh->g, "nproc_per_node") ||
        world(sh, "WORLD_SIZE", "world_size", false))
        return;
    if (world(sh, "GPUS_PER_NODE", "nproc_per_node", false) && !world(sh, "NNODES", "nnodes", false))
        world(sh, "NUM_NODES", "nnodes", false);
}

bool shell_read(struct givens *g, const char *const *sets, size_t nsets)
{
    struct shell sh = {.g = g};
    struct commands c = {0};
    const char *odd = memchr(g->source->text, 0, g->source->size);
    for (const char *s = g->source->text; *s && !odd; s++)
        if ((unsigned char)*s < ' ' && !strchr("\t\n\r", *s))
            odd = s;
    if (odd) {
        shell_error(&sh, (size_t)(odd - g->source->text), 1, "a byte that no script has: 0x%02x", (unsigned char)*odd);
        return false;
    }
    for (size_t i = 0; i < nsets; i++) {
        size_t n = strcspn(sets[i], "=");
        struct variable v = {.name = arena_strndup(g->arena, sets[i], n), .set = true};
        vec_push(g->arena, &v.words, (struct word){sets[i] + n + (sets[i][n] == '='), {0}});
        vec_push(g->arena, &sh.variables, v);
    }
    for (skip_blanks(&sh, true); !sh.failed && g->source->text[sh.at];) {
        statement(&sh, &c);
        if (!sh.failed)
            skip_blanks(&sh, true);
    }
    for (size_t i = 0; i < sh.variables.n && !c.started && !c.plain.n; i++) /* arrays alone */
        if (sh.variables.at[i].array && sh.variables.at[i].words.n && is_flag(sh.variables.at[i].words.at[0].text))
            take(&sh, sh.variables.at[i].words.at, sh.variables.at[i].words.n, false);
    take(&sh, c.plain.at, c.plain.n, false);
    if (!sh.failed)
        ranks(&sh);
    return !sh.failed;
}
