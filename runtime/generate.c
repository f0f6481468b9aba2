/* Text from a trained model.
 *
 * The tokens so far are sample 0 of a batch in memory, and the evaluation program runs on it as on held-out data: no
 * layout needs anything of its own.  What follows the text does not matter, since attention is causal; but the one id
 * behind it is -1, which makes a row of targets with a -1, in the whole batch just one: that of the text's last token.
 * Before XENT_SUM runs, a hook looks for this row in its targets and copies the row's logits to the ranks' shared
 * memory. With tensor parallelism each rank has its own columns, with context, pipeline and data parallelism only some
 * ranks have the row, and nothing here needs to know which.  Then rank 0 chooses the token, and all ranks append it.
 *
 * Keys and values are not kept, so each token costs an evaluation of the whole batch: of B sequences of S tokens, where
 * a cache would need one row.  Behind S tokens the text's last S are looked at.
 *
 * Other samples, and the places behind the text, are random ids, so that experts have about equally many rows.
 *
 * Choosing: argmax of logit + T g, with g = -log(-log u) for uniform u, has the distribution softmax(logit / T) (Gumbel
 * 1954, "Statistical theory of extreme values", page 29; Maddison et al., "A* sampling", 2014, section 2).  It needs no
 * sum over the vocabulary, and T = 0 is no special case. */

#include "runtime/generate.h"
#include "kernels/cpu/rows.h"
#include "runtime/file.h"
#include "runtime/hash.h"
#include "runtime/random.h"
#include "runtime/run.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- prompts ---- */

static enum status read_ids(const char *text, uint64_t vocab, struct prompt *out, struct error *error)
{
    static const char between[] = ", \t\n";
    for (const char *at = text + strspn(text, between); *at; at += strspn(at, between)) {
        size_t n = strcspn(at, between), digits = strspn(at, "0123456789");
        if (digits < n)
            return error_set(error, STATUS_USAGE,
                             "--generate: a vocabulary of %llu entries is not bytes, so that the prompt is token ids "
                             "between commas or spaces, and '%.*s' is none",
                             (unsigned long long)vocab, n < 40 ? (int)n : 40, at);
        unsigned long long id = n < 20 ? strtoull(at, NULL, 10) : UINT64_MAX;
        if (id >= vocab)
            return error_set(error, STATUS_USAGE, "--generate: token id %.*s, but the vocabulary has %llu entries",
                             n < 40 ? (int)n : 40, at, (unsigned long long)vocab);
        out->ids[out->n++] = (uint32_t)id;
        at += n;
    }
    return STATUS_OK;
}

enum status prompt_read(const char *text, uint64_t vocab, uint64_t more, struct prompt *out, struct error *error)
{
    size_t length = strlen(text); /* an id takes at least a byte */
    *out = (struct prompt){.bytes = vocab >= 256 && vocab <= PROMPT_BYTES_MOST};
    if (more < SIZE_MAX / 8)
        out->ids = calloc(length + more, sizeof *out->ids);
    if (!out->ids)
        return error_set(error, STATUS_WORLD, "out of memory for %llu tokens", (unsigned long long)more);
    if (!out->bytes)
        TRY(read_ids(text, vocab, out, error));
    for (size_t i = 0; out->bytes && i < length; i++)
        out->ids[out->n++] = (uint8_t)text[i];
    out->end = out->n + more;
    return out->n ? STATUS_OK : error_set(error, STATUS_USAGE, "--generate: the prompt is empty");
}

enum status generate_open(struct run *r, struct error *error)
{
    const struct settings *o = &r->o;
    if (!r->folder->eval)
        return error_set(error, STATUS_INPUT, "%s has no evaluation programs", o->dir);
    return prompt_read(o->generate, r->folder->train[0]->job.vocab, o->tokens, &r->prompt, error);
}

/* ---- choosing ---- */

/* noise of one id at one place of the text */
static double gumbel(uint64_t seed, uint64_t key, uint64_t place, uint32_t id)
{
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)}, word[4];
    uint32_t counter[4] = {id, (uint32_t)place, (uint32_t)seed, (uint32_t)(seed >> 32)};
    random_philox(counter, k, word);
    double u = ((double)word[0] + ((double)word[1] + 0.5) * 0x1p-32) * 0x1p-32; /* in (0, 1) */
    return -log(-log(u));
}

/* descending, what is no number last */
static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x < y) - (x > y);
}

uint32_t sampling_choose(const struct sampling *s, const float *logits, uint32_t n, uint64_t place, float *scratch)
{
    uint64_t key = hash64("generate", strlen("generate"), 0);
    double least = -INFINITY, most = -INFINITY;
    uint32_t best = UINT32_MAX;
    if (s->top_k && s->top_k < n && s->temperature > 0) {
        memcpy(scratch, logits, n * sizeof *scratch);
        qsort(scratch, n, sizeof *scratch, by_size);
        least = (double)scratch[s->top_k - 1];
    }
    for (uint32_t i = 0; i < n; i++) {
        double x = (double)logits[i];
        if (x < least)
            continue;
        if (s->temperature > 0)
            x += s->temperature * gumbel(s->seed, key, place, i);
        if (x > most) {
            most = x;
            best = i;
        }
    }
    return best;
}

/* ---- the evaluation's logits ---- */

struct shared { /* the world's region for logits */
    _Atomic uint32_t filled, token;
    float logits[];
};

struct generator {
    const struct run *run;
    struct exec *exec;
    struct batch_source *source;
    struct shared *shared;
    float *scratch; /* rank 0: of the vocabulary's length */
    uint64_t n;     /* tokens so far */
};

size_t generate_shared_bytes(const struct run *r)
{
    return sizeof(struct shared) + r->folder->train[0]->job.vocab * sizeof(float);
}

/* exec_hook: copies the logits of the row whose target is -1 */
static void copy_logits(void *context, const struct program *p, uint32_t insn, const struct kernel_args *k)
{
    struct shared *shared = context;
    if (p->insns[insn].op != OP_XENT_SUM)
        return;
    const struct view *logits = V(XENT_SUM, logits), *targets = V(XENT_SUM, targets);
    int64_t start = INTEGER(XENT_SUM, start), left = INTEGER(XENT_SUM, vocab) - start;
    uint32_t n = left <= 0 ? 0 : left < (int64_t)logits->cols ? (uint32_t)left : logits->cols;
    for (uint32_t i = 0; i < logits->rows && n; i++) {
        if (((const int32_t *)targets->data)[(size_t)i * targets->ld] != -1)
            continue;
        memcpy(shared->logits + start, row_load(logits, i, k->scratch), n * sizeof(float));
        atomic_fetch_add(&shared->filled, n);
    }
}

/* a batch of random ids */
static enum status make_batch(struct generator *g)
{
    const struct job_info *job = &g->run->folder->train[0]->job;
    const uint32_t key[2] = {1, 1};
    uint32_t word[4];
    TRY(data_blank(job->batch, job->sequence, &g->source));
    for (uint64_t i = 0; i < data_ntokens(g->source); i++) {
        const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0, 0};
        random_philox(counter, key, word);
        data_set(g->source, i, (int32_t)(word[0] % job->vocab));
    }
    return STATUS_OK;
}

/* the last tokens, at most a sequence of them, and the -1 behind them */
static void set_text(const struct generator *g)
{
    uint64_t sequence = g->run->folder->train[0]->job.sequence, m = g->n < sequence ? g->n : sequence;
    for (uint64_t i = 0; i < m; i++)
        data_set(g->source, i, (int32_t)g->run->prompt.ids[g->n - m + i]);
    data_set(g->source, m, -1);
}

static enum status check_room(const struct generator *g, struct error *error)
{
    const double *metrics = exec_buffer(g->exec, ROUTINE_EVAL, BUFFER_METRICS);
    if (!metrics || !(metrics[METRIC_NEED] > 0))
        return STATUS_OK;
    return error_set(
        error, STATUS_WORLD,
        "the text goes no further: a rank has %.0f rows for one expert rank, but the plan holds fewer; plan "
        "with expert_room %.4g or more",
        metrics[METRIC_NEED_ROWS], ceil(metrics[METRIC_NEED] * 100) / 100);
}

/* rank 0, when all logits are there */
static enum status choose(const struct generator *g, struct error *error)
{
    const struct settings *o = &g->run->o;
    const struct sampling s = {o->temperature, o->top_k, o->seed};
    uint64_t vocab = g->run->folder->train[0]->job.vocab;
    uint32_t filled = atomic_exchange(&g->shared->filled, 0);
    if (filled != vocab)
        return error_set(error, STATUS_BUG, "%u logits of %llu came", filled, (unsigned long long)vocab);
    uint32_t n = g->run->prompt.bytes ? 256 : (uint32_t)vocab;
    uint32_t id = sampling_choose(&s, g->shared->logits, n, g->n - g->run->prompt.n, g->scratch);
    if (id == UINT32_MAX)
        return error_set(error, STATUS_INPUT, "no logit is a number: the weights of %s are of no use", o->init);
    atomic_store(&g->shared->token, id);
    return STATUS_OK;
}

/* The next token, which all ranks append. */
static enum status next_token(struct generator *g, struct error *error)
{
    const struct world *w = &g->run->world;
    set_text(g);
    TRY(exec_run(g->exec, ROUTINE_EVAL, g->source, NULL));
    TRY(check_room(g, error));
    TRY(world_barrier(w));
    if (w->rank == 0)
        TRY(choose(g, error));
    TRY(world_barrier(w));
    g->run->prompt.ids[g->n++] = atomic_load(&g->shared->token);
    return STATUS_OK;
}

/* ---- output ---- */

/* length of the UTF-8 character that the bytes begin with; 0: none */
static size_t character(const uint8_t *p, size_t left)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (!n || n > left)
        return 0;
    uint8_t least = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80; /* no detours, no surrogates, at most U+10FFFF */
    uint8_t most = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    if (n > 1 && (p[1] < least || p[1] > most))
        return 0;
    for (size_t i = 2; i < n; i++)
        if (p[i] >> 6 != 2)
            return 0;
    return n;
}

size_t generate_utf8(const uint8_t *bytes, size_t n, char *out)
{
    size_t size = 0;
    for (size_t i = 0, step; i < n; i += step) {
        step = character(bytes + i, n - i);
        memcpy(out + size, step ? (const char *)bytes + i : "\xef\xbf\xbd", step ? step : 3);
        size += step ? step : 3;
        step += !step;
    }
    return size;
}

/* tokens [from, to) of the text, at once; what would steer a terminal is a question mark there */
static enum status print_tokens(const struct prompt *p, uint64_t from, uint64_t to, struct error *error)
{
    bool terminal = isatty(STDOUT_FILENO);
    for (uint64_t i = from; i < to; i++) {
        uint32_t id = p->ids[i];
        if (!p->bytes)
            printf("%s%u", i ? " " : "", id);
        else
            putchar(terminal && id < ' ' && id != '\n' && id != '\t' ? '?' : (int)id);
    }
    return fflush(stdout) ? error_set(error, STATUS_WORLD, "stdout: %s", strerror(errno)) : STATUS_OK;
}

/* null where ids are no bytes */
static json_t *text_of(const struct prompt *p, uint64_t from, uint64_t to)
{
    size_t n = (size_t)(to - from);
    uint8_t *bytes = p->bytes ? malloc(n) : NULL;
    char *text = p->bytes ? malloc(3 * n) : NULL;
    json_t *string = NULL;
    if (bytes && text) {
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)p->ids[from + i];
        string = json_stringn(text, generate_utf8(bytes, n, text));
    }
    free(bytes);
    free(text);
    return string ? string : json_null();
}

static json_t *ids_of(const struct prompt *p, uint64_t from, uint64_t to)
{
    json_t *list = json_array();
    for (uint64_t i = from; i < to; i++)
        json_array_append_new(list, json_integer((json_int_t)p->ids[i]));
    return list;
}

static void print_summary(const struct run *r, double seconds)
{
    const struct prompt *p = &r->prompt;
    double tokens = (double)(p->end - p->n);
    json_t *o = json_pack("{s:o, s:o, s:o, s:o, s:I, s:f, s:f, s:s}", "prompt", text_of(p, 0, p->n), "text",
                          text_of(p, p->n, p->end), "prompt_ids", ids_of(p, 0, p->n), "ids", ids_of(p, p->n, p->end),
                          "ranks", (json_int_t)r->world.nranks, "seconds", seconds, "seconds_per_token",
                          seconds / tokens, "plan", r->folder->hash);
    json_dumpf(o, stdout, 0);
    putchar('\n');
    json_decref(o);
}

static enum status write_text(struct generator *g, struct error *error)
{
    const struct run *r = g->run;
    const struct prompt *p = &r->prompt;
    bool writes = r->world.rank == 0, streams = writes && !r->o.json;
    if (writes && !p->bytes && !r->o.quiet)
        fprintf(stderr, "the vocabulary of %llu entries is not bytes: token ids go in and come out\n",
                (unsigned long long)r->folder->train[0]->job.vocab);
    if (streams)
        TRY(print_tokens(p, 0, p->n, error));
    int64_t start = world_now_ns();
    while (g->n < p->end) {
        TRY(next_token(g, error));
        if (streams)
            TRY(print_tokens(p, g->n - 1, g->n, error));
    }
    double seconds = 1e-9 * (double)(world_now_ns() - start);
    if (!writes)
        return STATUS_OK;
    if (r->o.json)
        print_summary(r, seconds);
    else
        putchar('\n');
    const char *lost = file_flush_stdout();
    if (!r->o.quiet)
        fprintf(stderr, "%llu tokens, %.3g s each\n", (unsigned long long)r->o.tokens, seconds / (double)r->o.tokens);
    return lost ? error_set(error, STATUS_WORLD, "stdout: %s", lost) : STATUS_OK;
}

enum status generate_rank(const struct run *r, struct exec *exec, struct error *error)
{
    struct generator g = {.run = r, .exec = exec, .shared = (struct shared *)(void *)r->world.logits, .n = r->prompt.n};
    double *block = exec_buffer(exec, ROUTINE_EVAL, BUFFER_BLOCK);
    if (block)
        memset(block, 0, STEP_WORDS * sizeof *block); /* the batch begins with sample 0 */
    g.scratch = malloc(r->folder->train[0]->job.vocab * sizeof *g.scratch);
    enum status st = g.scratch ? make_batch(&g) : STATUS_WORLD;
    exec_set_hook(exec, copy_logits, g.shared);
    if (st == STATUS_OK)
        st = write_text(&g, error);
    exec_set_hook(exec, NULL, NULL);
    data_close(g.source);
    free(g.scratch);
    return st;
}
