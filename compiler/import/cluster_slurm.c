/* Reading topology.conf and the NodeName lines of slurm.conf; topology.yaml is slurm_yaml.c's.
 *
 * A line is Key=Value pairs with blanks between them; '#' begins a comment, a backslash at the end goes on in the next
 * line, keys are of upper or lower case.  Lines that begin with other keys than those below say nothing about a
 * cluster. A line is put together in a buffer that remembers where each byte was, so that carets find it. */

#include "compiler/import/slurm.h"

#include "compiler/topology/topo_catalogue.h"
#include "compiler/topology/topo_rules.h"

#include <ctype.h>
#include <stdlib.h>
#include <strings.h>

#define GROUPS_MAX 65536u
#define PAIRS_MAX 64u

struct pair {
    const char *key, *value;
    struct span key_at, value_at;
    size_t from; /* of the value, in the buffer */
};

struct conf {
    struct cluster_facts *f;
    struct slurm *slurm;
    const struct source *source;
    size_t at; /* of what has not been read */
    VEC(char) text;
    VEC(uint32_t) places; /* of each byte of text in the source */
    struct pair pairs[PAIRS_MAX];
    uint32_t npairs;
};

/* ---- lines ---- */

/* Adds the source's next line to the buffer; true where the one behind it belongs to it as well. */
static bool add_line(struct conf *c)
{
    const char *s = c->source->text;
    size_t from = c->at, end = from;
    while (end < c->source->size && s[end] != '\n')
        end++;
    c->at = end + 1;
    for (size_t i = from; i < end; i++)
        if (s[i] == '#' && (i == from || s[i - 1] != '\\'))
            end = i;
    while (end > from && isspace((unsigned char)s[end - 1]))
        end--;
    bool more = end > from && s[end - 1] == '\\';
    end -= more;
    for (size_t i = from; i < end; i++) {
        vec_push(c->f->arena, &c->text, s[i]);
        vec_push(c->f->arena, &c->places, (uint32_t)i);
    }
    return more && c->at < c->source->size;
}

/* bytes from .. end of the buffer, in the source, as far as they are in one line of it */
static struct span place(const struct conf *c, size_t from, size_t end)
{
    if (from >= c->places.n)
        return (struct span){c->source, c->places.n ? c->places.at[c->places.n - 1] + 1 : 0, 0};
    uint32_t start = c->places.at[from], n = 0;
    while (from + n < end && c->places.at[from + n] == start + n)
        n++;
    return (struct span){c->source, start, n};
}

static size_t skip_blanks(const struct conf *c, size_t i)
{
    while (i < c->text.n && isspace((unsigned char)c->text.at[i]))
        i++;
    return i;
}

/* one Key=Value from byte i on, which is moved behind it */
static bool read_pair(struct conf *c, size_t *i, struct pair *p)
{
    const char *s = c->text.at;
    size_t from = *i, end = from, n = c->text.n;
    while (end < n && s[end] != '=' && !isspace((unsigned char)s[end]))
        end++;
    p->key = arena_strndup(c->f->arena, s + from, end - from);
    p->key_at = place(c, from, end);
    end = skip_blanks(c, end);
    if (end >= n || s[end] != '=' || !*p->key) {
        diag_error(c->f->diag, p->key_at, "bad-conf", "Key=Value should stand here");
        return false;
    }
    from = skip_blanks(c, end + 1);
    bool quoted = from < n && s[from] == '"';
    from += quoted;
    for (end = from; end < n && (quoted ? s[end] != '"' : !isspace((unsigned char)s[end]));)
        end++;
    p->from = from;
    p->value = arena_strndup(c->f->arena, s + from, end - from);
    p->value_at = place(c, from, end);
    *i = end + (quoted && end < n);
    return true;
}

static bool read_pairs(struct conf *c)
{
    c->npairs = 0;
    for (size_t i = skip_blanks(c, 0); i < c->text.n; i = skip_blanks(c, i)) {
        if (c->npairs == PAIRS_MAX) {
            diag_error(c->f->diag, place(c, i, i + 1), "too-many", "more than %u values in a line", PAIRS_MAX);
            return false;
        }
        if (!read_pair(c, &i, &c->pairs[c->npairs++]))
            return false;
    }
    return true;
}

static const struct pair *find(const struct conf *c, const char *key)
{
    for (uint32_t i = 0; i < c->npairs; i++)
        if (!strcasecmp(c->pairs[i].key, key))
            return &c->pairs[i];
    return NULL;
}

/* ---- values ---- */

static bool read_hosts(struct conf *c, const struct pair *p, struct hostlist *list)
{
    struct hostlist_error e;
    if (!hostlist_expand(c->f->arena, p->value, strlen(p->value), c->slurm->names_left, list, &e)) {
        diag_error(c->f->diag, place(c, p->from + e.at, p->from + e.at + e.length), "bad-hostlist", "%s", e.message);
        return false;
    }
    c->slurm->names_left -= list->n;
    return true;
}

/* A switch or a block has one name. */
static bool read_name(struct conf *c, const struct pair *p, const char **name)
{
    struct hostlist list;
    if (!read_hosts(c, p, &list))
        return false;
    if (list.n != 1) {
        diag_error(c->f->diag, p->value_at, "bad-conf", "one name is wanted, not %u", list.n);
        return false;
    }
    *name = list.names[0];
    return true;
}

/* keys of a line of the topology: others are mistyped */
static bool check_keys(struct conf *c, const char *const *known, size_t n)
{
    for (uint32_t i = 0; i < c->npairs; i++) {
        bool fine = false;
        for (size_t k = 0; k < n; k++)
            fine = fine || !strcasecmp(c->pairs[i].key, known[k]);
        if (fine)
            continue;
        const char *near = diag_nearest(c->pairs[i].key, known, n);
        diag_error(c->f->diag, c->pairs[i].key_at, "unknown-word", "'%.40s' is no key of a line with %s",
                   c->pairs[i].key, known[0]);
        if (near)
            diag_caret(c->f->diag, "did you mean '%s'?", near);
        return false;
    }
    return true;
}

/* ---- lines by their first key ---- */

bool slurm_add(struct cluster_facts *f, bool block, struct span kind_at, struct slurm_group g)
{
    struct slurm *s = f->slurm;
    if (s->groups.n && s->blocks != block) {
        diag_error(f->diag, kind_at, "bad-conf", "switches and blocks in one cluster");
        diag_note(f->diag, s->groups.at[0].name_at, "the first %s", s->blocks ? "block" : "switch");
        return false;
    }
    if (s->groups.n == GROUPS_MAX) {
        diag_error(f->diag, g.name_at, "too-many", "more than %u switches or blocks", GROUPS_MAX);
        return false;
    }
    s->blocks = block;
    g.parent = UINT32_MAX;
    vec_push(f->arena, &s->groups, g);
    return true;
}

static bool read_group(struct conf *c, bool block)
{
    static const char *const of_switch[] = {"SwitchName", "Switches", "Nodes", "LinkSpeed"}, *const of_block[] = {
                                                                                                 "BlockName", "Nodes"};
    struct slurm_group g = {.name_at = c->pairs[0].value_at};
    const struct pair *nodes = find(c, "Nodes"), *switches = block ? NULL : find(c, "Switches");
    if (!check_keys(c, block ? of_block : of_switch, block ? ARRAY_LEN(of_block) : ARRAY_LEN(of_switch)) ||
        !read_name(c, &c->pairs[0], &g.name))
        return false;
    if (!nodes == !switches) {
        diag_error(c->f->diag, g.name_at, "bad-conf", "'%s' has %s", g.name,
                   block    ? "no Nodes"
                   : !nodes ? "neither Nodes nor Switches"
                            : "both Nodes and Switches");
        return false;
    }
    g.leaf = nodes != NULL;
    g.below_at = (nodes ? nodes : switches)->value_at;
    return read_hosts(c, nodes ? nodes : switches, &g.below) && slurm_add(c->f, block, c->pairs[0].key_at, g);
}

bool slurm_add_size(struct cluster_facts *f, uint64_t size)
{
    enum { SIZES_MAX = 16 };
    if (!size || size > TOPO_NODES_MAX || f->slurm->block_sizes.n == SIZES_MAX)
        return false;
    vec_push(f->arena, &f->slurm->block_sizes, (uint32_t)size);
    return true;
}

static bool read_block_sizes(struct conf *c)
{
    const struct pair *p = &c->pairs[0];
    c->slurm->sizes_at = p->value_at;
    c->slurm->block_sizes.n = 0;
    for (const char *at = p->value;; at++) {
        size_t n = strspn(at, "0123456789");
        uint64_t size = 0;
        for (size_t i = 0; i < n && n <= 7; i++)
            size = size * 10 + (uint64_t)(at[i] - '0');
        if ((at[n] && at[n] != ',') || !slurm_add_size(c->f, size)) {
            diag_error(c->f->diag, p->value_at, "bad-conf",
                       "BlockSizes wants numbers of nodes, with commas between them");
            return false;
        }
        at += n;
        if (!*at)
            return true;
    }
}

/* One entry of Gres, "gpu:h100:8(S:0-1)" or "gpu:8" or "gpu", `n` bytes; what is no GPU adds none. */
static bool read_gres_entry(struct conf *c, const struct pair *p, const char *entry, size_t n, struct slurm_node *node)
{
    n = n < strcspn(entry, "(") ? n : strcspn(entry, "(");
    if (n < 3 || strncasecmp(entry, "gpu", 3) != 0 || (n > 3 && entry[3] != ':'))
        return true;
    const char *type = NULL;
    uint64_t count = 1;
    for (size_t at = 4, word; at < n; at += word + 1) {
        word = strcspn(entry + at, ":");
        word = word < n - at ? word : n - at;
        bool number = word && strspn(entry + at, "0123456789") >= word;
        if (number)
            count = word < 8 ? strtoull(entry + at, NULL, 10) : UINT32_MAX;
        else if (!type)
            type = arena_strndup(c->f->arena, entry + at, word);
    }
    if (node->gpus && ((type != NULL) != (node->type != NULL) || (type && strcmp(type, node->type) != 0))) {
        diag_error(c->f->diag, p->value_at, "bad-conf", "two kinds of GPUs on a node");
        return false;
    }
    if (count > TOPO_NODE_GPUS_MAX || count + node->gpus > TOPO_NODE_GPUS_MAX) {
        diag_error(c->f->diag, p->value_at, "bad-conf", "a node has at most %u GPUs", TOPO_NODE_GPUS_MAX);
        return false;
    }
    node->gpus += (uint32_t)count;
    node->type = type;
    return true;
}

static bool read_gres(struct conf *c, const struct pair *p, struct slurm_node *node)
{
    node->gpus = 0;
    node->type = NULL;
    node->gres_at = p->value_at;
    for (const char *at = p->value; *at;) {
        size_t n = 0;
        for (int deep = 0; at[n] && (at[n] != ',' || deep > 0); n++)
            deep += at[n] == '(' ? 1 : at[n] == ')' ? -1 : 0;
        if (!read_gres_entry(c, p, at, n, node))
            return false;
        at += n + (at[n] == ',');
    }
    return true;
}

static bool read_node(struct conf *c)
{
    struct slurm *s = c->slurm;
    const struct pair *gres = find(c, "Gres");
    struct slurm_node node = {.gpus = s->default_gpus, .type = s->default_type, .at = c->pairs[0].value_at};
    node.gres_at = node.at;
    if (gres && !read_gres(c, gres, &node))
        return false;
    if (!strcasecmp(c->pairs[0].value, "DEFAULT")) {
        s->default_gpus = node.gpus;
        s->default_type = node.type;
        return true;
    }
    if (!read_hosts(c, &c->pairs[0], &node.names))
        return false;
    vec_push(c->f->arena, &s->nodes, node);
    return true;
}

static bool read_line(struct conf *c)
{
    size_t from = skip_blanks(c, 0), n = from;
    while (n < c->text.n && (isalnum((unsigned char)c->text.at[n]) || c->text.at[n] == '_'))
        n++;
    const char *key = arena_strndup(c->f->arena, c->text.n ? c->text.at + from : "", n - from);
    bool is_switch = !strcasecmp(key, "SwitchName"), is_block = !strcasecmp(key, "BlockName"),
         is_sizes = !strcasecmp(key, "BlockSizes"), is_node = !strcasecmp(key, "NodeName"),
         is_name = !strcasecmp(key, "ClusterName");
    if (!strcasecmp(key, "Include"))
        diag_warning(c->f->diag, place(c, from, n), "include", "Include is not followed: give that file as well");
    if (!is_switch && !is_block && !is_sizes && !is_node && !is_name)
        return true;
    if (!read_pairs(c))
        return false;
    if (is_name)
        return cluster_say(c->f, KEY_NAME, c->pairs[0].value, c->pairs[0].value_at);
    return is_sizes ? read_block_sizes(c) : is_node ? read_node(c) : read_group(c, is_block);
}

static bool is_yaml(const struct source *s)
{
    size_t n = strlen(s->name);
    return (n > 5 && !strcmp(s->name + n - 5, ".yaml")) || (n > 4 && !strcmp(s->name + n - 4, ".yml")) ||
           (s->size > 3 && !memcmp(s->text, "---", 3));
}

bool cluster_read_slurm(struct cluster_facts *f, const struct cluster_file *file)
{
    if (!f->slurm) {
        f->slurm = ARENA_NEW(f->arena, struct slurm);
        f->slurm->names_left = 4ull * TOPO_NODES_MAX;
    }
    if (is_yaml(file->source))
        return slurm_read_yaml(f, file->source);
    struct conf c = {.f = f, .slurm = f->slurm, .source = file->source};
    bool fine = true;
    size_t groups = f->slurm->groups.n, nodes = f->slurm->nodes.n;
    while (c.at < c.source->size) {
        c.text.n = c.places.n = 0;
        while (add_line(&c))
            ;
        fine = read_line(&c) && fine;
    }
    if (fine && groups == f->slurm->groups.n && nodes == f->slurm->nodes.n) {
        diag_error(f->diag, (struct span){file->source, 0, 0}, "bad-conf",
                   "no line with SwitchName=, BlockName= or NodeName=");
        return false;
    }
    return fine;
}
