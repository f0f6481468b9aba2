/* Reads the table of pairs and predicts each run as `llmc estimate` would: its words are those of --set, and what they
 * leave open is the search's. */

#include "tests/compiler/target/pairs.h"

#include "compiler/inspect/forecast.h"
#include "compiler/model/sema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 12, MOST_SETS = 40 };

/* splits a line at tabs, in place; false if it has not so many fields */
static bool fields_of(char *line, const char *fields[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++) {
        size_t n = strcspn(line, i + 1 < COLUMNS ? "\t" : "");
        if ((line[n] == '\t') != (i + 1 < COLUMNS))
            return false;
        fields[i] = !strncmp(line, "-", n) && n == 1 ? "" : line;
        line[n] = 0;
        line += n + 1;
    }
    return true;
}

struct pair *pairs_read(struct arena *a, const char *path, uint32_t *n)
{
    FILE *in = fopen(path, "r");
    struct pair *all = ARENA_ARRAY(a, struct pair, 256);
    char line[4096];
    bool named = false;
    *n = 0;
    while (in && fgets(line, sizeof line, in)) {
        const char *f[COLUMNS];
        line[strcspn(line, "\n")] = 0;
        if (*line == '#')
            continue;
        if (*n == 256 || !fields_of(arena_strndup(a, line, strlen(line)), f)) {
            fprintf(stderr, "%s: not a pair: %s\n", path, line);
            fclose(in);
            return NULL;
        }
        if (named)
            all[(*n)++] = (struct pair){.name = f[0],
                                        .target = f[1],
                                        .model = f[2],
                                        .cluster = f[3],
                                        .plan = f[4],
                                        .off = f[5],
                                        .on = f[6],
                                        .speed = strcmp(f[7], "s") != 0,
                                        .tokens = !strcmp(f[7], "tokens"),
                                        .measured = {strtod(f[8], NULL), strtod(f[9], NULL)},
                                        .missed = f[10],
                                        .source = f[11]};
        named = true; /* the first line has the columns' names */
    }
    if (!in) {
        perror(path);
        return NULL;
    }
    fclose(in);
    return all;
}

/* adds the words of a list with ';' between them */
static uint32_t add_sets(struct arena *a, const char *list, const char **sets, uint32_t n)
{
    for (size_t length; *list && n < MOST_SETS; list += length + (list[length] == ';')) {
        length = strcspn(list, ";");
        sets[n++] = arena_strndup(a, list, length);
    }
    return n;
}

const char *pair_predict(struct arena *a, const struct pair *x, struct pair_figures *out)
{
    for (int k = 0; k < 2; k++) {
        const char *sets[MOST_SETS] = {arena_printf(a, "target=%s", x->target)};
        uint32_t n = add_sets(a, x->plan, sets, 1);
        n = add_sets(a, k ? x->on : x->off, sets, n);
        struct diag *d = diag_new(a);
        struct job *job = job_read(a, d, x->model, sets, n);
        struct topo *topo = topo_read(a, d, x->cluster);
        struct forecast f;
        if (!job || !topo || forecast(a, d, job, topo, 1, 0, &f) != STATUS_OK)
            return diag_first(d);
        const struct decision *best = &f.found->candidates[0].decision;
        double seconds = f.found->candidates[0].estimate.step_time_s, gpus = best->tp * best->cp * best->pp * best->dp;
        double tokens = (double)job->train.batch * (double)job->train.sequence / gpus;
        out->seconds[k] = seconds;
        out->off[k] = x->tokens  ? tokens / seconds / x->measured[k] - 1
                      : x->speed ? NAN
                                 : x->measured[k] / seconds - 1;
        if (f.plan)
            plan_close(f.plan);
    }
    return NULL;
}

double pair_predicted_gain(const struct pair_figures *x)
{
    return 1 - x->seconds[1] / x->seconds[0];
}

double pair_gain(const struct pair *x)
{
    return 1 - (x->speed ? x->measured[0] / x->measured[1] : x->measured[1] / x->measured[0]);
}

bool pair_holds(const struct pair *x, double predicted)
{
    double gain = pair_gain(x);
    return gain * predicted > 0 && fabs(predicted - gain) <= fabs(gain) / 3;
}
