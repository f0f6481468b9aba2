/* Predictions for many measured runs in one process: what accuracy.py reports on and fit.py fits.
 *
 *     accuracy FOLDER        each folder FOLDER/ID/ holds model.llm and cluster.xml
 *
 * All inputs are read once.  Then one command per line on standard input:
 *     set PROFILE NAME VALUE     changes a parameter for the rows of that profile, without bounds
 *     get PROFILE NAME           prints its value
 *     run [I J ...]              predicts all rows (or those rows, by number): one line each, then a line "done"
 * A row is: number, id, profile, exit status of the search, step time, its items, memory and its items, the layout; tabs
 * between. */

#include "compiler/model/sema.h"
#include "compiler/search/search.h"
#include "compiler/topology/topo.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    char *id;
    struct job *job;
    struct topo *topo;
    const struct profile *stack; /* as the commands have set it */
    struct profile profile;      /* with what the row adjusts */
};
struct stack {
    const char *name;
    struct profile profile;
};
struct bench {
    struct arena *inputs;
    uint32_t nrows, nstacks;
    struct row *rows;
    struct stack stacks[16];
};

static struct stack *find_stack(struct bench *b, const char *name)
{
    for (uint32_t i = 0; i < b->nstacks; i++)
        if (!strcmp(b->stacks[i].name, name))
            return &b->stacks[i];
    return NULL;
}

static int skip_dots(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* a row whose inputs are refused keeps a NULL job */
static void read_row(struct bench *b, const char *folder, const char *id)
{
    char path[4096];
    struct row *row = &b->rows[b->nrows];
    struct diag *d = diag_new(b->inputs);
    snprintf(path, sizeof path, "%s/%s/cluster.xml", folder, id);
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    fclose(f);
    *row = (struct row){.id = strdup(id), .topo = topo_read(b->inputs, d, path)};
    snprintf(path, sizeof path, "%s/%s/model.llm", folder, id);
    row->job = row->topo ? job_read(b->inputs, d, path, NULL, 0) : NULL;
    if (row->job) {
        row->stack = &find_stack(b, row->job->wishes.profile_name)->profile;
        row->job->wishes.profile = &row->profile;
    }
    b->nrows++;
}

static bool read_rows(struct bench *b, const char *folder)
{
    struct dirent **names;
    int n = scandir(folder, &names, skip_dots, alphasort);
    if (n < 0) {
        perror(folder);
        return false;
    }
    b->rows = calloc((size_t)n + 1, sizeof *b->rows);
    for (int i = 0; b->rows && i < n; i++) {
        read_row(b, folder, names[i]->d_name);
        free(names[i]);
    }
    free(names);
    return b->rows != NULL;
}

static void print_row(uint32_t i, const struct row *row, const struct search_result *r)
{
    printf("%u\t%s\t%s\t", i, row->id, row->job ? row->job->wishes.profile_name : "-");
    if (!r || r->ncandidates == 0) {
        printf("%d\n", row->job ? 1 : 3);
        return;
    }
    const struct estimate *e = &r->candidates[0].estimate;
    const struct decision *d = &r->candidates[0].decision;
    printf("0\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\t%.9g\t%llu\t%llu\t%llu\t%llu\t%llu\t%llu\t%llu\t%llu\t%llu", e->step_time_s, e->compute_s,
           e->tp_comm_s, e->pp_comm_s, e->dp_comm_s, e->bubble_s, e->optimizer_s, (unsigned long long)e->peak_bytes,
           (unsigned long long)e->parameter_bytes, (unsigned long long)e->gradient_bytes,
           (unsigned long long)e->optimizer_bytes, (unsigned long long)e->activation_bytes,
           (unsigned long long)e->buffer_bytes, (unsigned long long)e->allocator_bytes,
           (unsigned long long)e->communicator_bytes, (unsigned long long)e->context_bytes);
    struct arena *a = arena_new();
    printf("\t%s\n", decision_text(a, row->job, d));
    arena_free(a);
}

static void run_row(struct bench *b, uint32_t i)
{
    struct row *row = &b->rows[i];
    if (!row->job) {
        print_row(i, row, NULL);
        return;
    }
    struct arena *a = arena_new();
    struct diag *d = diag_new(a);
    row->profile = *row->stack;
    profile_adjust(&row->profile, row->job->wishes.adjusts, row->job->wishes.nadjusts);
    print_row(i, row, search(a, d, row->job, row->topo, 1, 0, false));
    arena_free(a);
}

/* false on a line that is no command */
static bool obey(struct bench *b, char *line)
{
    char *rest, *word = strtok_r(line, " \n", &rest);
    if (!word)
        return true;
    if (!strcmp(word, "run")) {
        char *number = strtok_r(NULL, " \n", &rest);
        for (uint32_t i = 0; !number && i < b->nrows; i++)
            run_row(b, i);
        for (; number; number = strtok_r(NULL, " \n", &rest))
            if (strtoul(number, NULL, 10) < b->nrows)
                run_row(b, (uint32_t)strtoul(number, NULL, 10));
        printf("done\n");
        fflush(stdout);
        return true;
    }
    char *name = strtok_r(NULL, " \n", &rest), *key = strtok_r(NULL, " \n", &rest), *value = strtok_r(NULL, " \n", &rest);
    struct stack *stack = name ? find_stack(b, name) : NULL;
    const struct profile_param *at = key ? profile_param(key) : NULL;
    if (!stack || !at || (!strcmp(word, "set") && !value))
        return false;
    double *p = PROFILE_PARAM(&stack->profile, at);
    if (!strcmp(word, "set"))
        *p = strtod(value, NULL);
    else if (!strcmp(word, "get"))
        printf("%.9g\n", *p);
    else
        return false;
    fflush(stdout);
    return true;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: accuracy FOLDER\n");
        return 2;
    }
    struct bench b = {.inputs = arena_new()};
    for (; b.nstacks < 16 && profile_name(b.nstacks); b.nstacks++) {
        b.stacks[b.nstacks].name = profile_name(b.nstacks);
        if (!profile_find(&b.stacks[b.nstacks].profile, b.stacks[b.nstacks].name)) {
            fprintf(stderr, "accuracy: the built-in profile %s does not parse\n", b.stacks[b.nstacks].name);
            return 3;
        }
    }
    if (!read_rows(&b, argv[1]))
        return 4;
    char line[65536];
    while (fgets(line, sizeof line, stdin))
        if (!obey(&b, line)) {
            fprintf(stderr, "accuracy: not a command: %s\n", line);
            return 2;
        }
    for (uint32_t i = 0; i < b.nrows; i++)
        free(b.rows[i].id);
    free(b.rows);
    arena_free(b.inputs);
    return 0;
}
