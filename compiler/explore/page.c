/* The page itself: page/ and the module as the build has put them into the program, with the job's data in place of a
 * mark: both files, the cluster's element tree, and the words that menus offer. */

#include "compiler/explore/explore.h"

#include "compiler/emit/plan.h"
#include "compiler/model/decision.h"
#include "compiler/profile/profile.h"
#include "compiler/target/target.h"
#include "compiler/report/report.h"

#include <string.h>

static const char *const page[] = {
#include "compiler/explore/page.inc"
};

static const char *const schedules[] = {
#define SCHEDULE(kind, word, arguments, stages, traits) word,
#define ORDERED(kind, word, arguments, stages, traits) word,
#include "compiler/model/schedule.def"
};

/* gzip's format in base64, in lines; "" alone where there is none */
static const char *const module[] = {
#include "compiler/explore/module.inc"
    ""};

bool explore_has_module(void)
{
    return sizeof module / sizeof *module > 1;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void put_words(const char *key, const char *const *words, size_t n, struct strbuf *out)
{
    strbuf_printf(out, ",\n\"%s\": [", key);
    for (size_t i = 0; i < n; i++)
        strbuf_json(out, i ? ", %s" : "%s", words[i]);
    strbuf_text(out, "]");
}

static void put_menus(const struct explore_page *p, struct strbuf *out)
{
    enum { MOST = 64 };
    const char *words[MOST];
    size_t n = 0;
    for (size_t i = 0; i < MOST && profile_name(i); i++)
        words[n++] = profile_name(i);
    put_words("profiles", words, n, out);
    for (n = 0; n < MOST && target_name(n); n++)
        words[n] = target_name(n);
    put_words("targets", words, n, out);
    put_words("schedules", schedules, sizeof schedules / sizeof *schedules, out);
    put_words("recomputes", recompute_names, RECOMPUTE_AUTO + 1, out);
    put_words("sets", p->sets, p->nsets, out);
}

static void put_cluster(const struct explore_page *p, struct strbuf *out)
{
    struct arena *a = arena_new();
    const struct topo *t = p->topo;
    const bool alike = !strcmp(name_of(p->model), name_of(p->cluster));
    const struct source source = {
        .name = alike ? "cluster.xml" : name_of(p->cluster), .text = t->text, .size = t->text_size};
    struct strbuf tree = {0};
    uint32_t gpus = 0;
    for (uint32_t i = 0; i < t->ntypes; i++)
        gpus = t->types[i].gpus > gpus ? t->types[i].gpus : gpus;
    explore_tree(xml_parse(a, diag_new(a), &source), &tree);
    strbuf_json(out,
                ",\n'cluster': {'name': %s, 'title': %s, 'gpus': %lu, 'gpus_per_node': %u, 'text': %s,\n'tree': %s}",
                source.name, t->name, t->usable_gpus, gpus, arena_strndup(a, t->text, t->text_size), tree.text);
    strbuf_free(&tree);
    arena_free(a);
}

void explore_write(const struct explore_page *p, FILE *out)
{
    struct strbuf data = {0};
    const struct job *job = p->job;
    strbuf_json(&data, "{'version': %s, 'model': {'name': %s, 'title': %s, 'text': %s, 'sequence': %lu, 'batch': %lu}",
                LLMC_VERSION, name_of(p->model), job->model.name, job->source->text, job->train.sequence,
                job->train.batch);
    put_menus(p, &data);
    put_cluster(p, &data);
    strbuf_text(&data, "}");
    for (size_t i = 0; i < sizeof page / sizeof *page; i++) {
        if (strcmp(page[i], "<!--data-->") != 0) {
            fprintf(out, "%s\n", page[i]);
            continue;
        }
        report_script("job", data.text, out);
        fputs("<script type=\"text/plain\" id=\"module\">\n", out);
        for (size_t k = 0; k + 1 < sizeof module / sizeof *module; k++)
            fprintf(out, "%s\n", module[k]);
        fputs("</script>\n", out);
    }
    strbuf_free(&data);
}
