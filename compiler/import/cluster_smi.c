/* The matrix that `nvidia-smi topo -m` prints: which GPUs NVLink joins by how many links (NV12), and how many NICs the
 * driver sees.  It names neither the GPUs' model nor the NICs' speed. */

#include "compiler/import/cluster_facts.h"
#include "compiler/import/lines.h"

#include "compiler/topology/topo_rules.h"

#define COLUMNS_MAX 512u

struct matrix {
    struct cluster_facts *f;
    const struct source *source;
    uint32_t ncolumns, ngpus; /* GPUs come first */
    struct span columns[COLUMNS_MAX];
    uint32_t links[TOPO_NODE_GPUS_MAX * TOPO_NODE_GPUS_MAX];
    struct span cells[TOPO_NODE_GPUS_MAX * TOPO_NODE_GPUS_MAX];
};

static bool is_gpu(struct span word)
{
    uint32_t ignored;
    struct span number = {word.source, word.start + 3, word.length - 3};
    return word.length > 3 && !memcmp(word.source->text + word.start, "GPU", 3) && line_number(number, &ignored);
}

static bool same_word(struct span a, struct span b)
{
    return a.length == b.length && !memcmp(a.source->text + a.start, b.source->text + b.start, a.length);
}

/* The heading: names of devices up to "CPU Affinity"; false in front of it. */
static bool read_heading(struct matrix *m, struct line *l)
{
    struct span word;
    while (line_next(l)) {
        m->ncolumns = m->ngpus = 0;
        while (line_word(l, &word) && !line_word_is(word, "CPU") && !line_word_is(word, "NUMA") &&
               !line_word_is(word, "X")) {
            if (!m->ncolumns && !is_gpu(word))
                break;
            if (m->ncolumns == COLUMNS_MAX || (is_gpu(word) && m->ngpus == TOPO_NODE_GPUS_MAX)) {
                diag_error(m->f->diag, word, "too-many", "more than %u GPUs or %u devices", TOPO_NODE_GPUS_MAX,
                           COLUMNS_MAX);
                return false;
            }
            m->ngpus += is_gpu(word);
            m->columns[m->ncolumns++] = word;
        }
        if (m->ncolumns)
            return true;
    }
    diag_error(m->f->diag, (struct span){m->source, 0, 0}, "bad-matrix",
               "no heading of GPU0 and others begins a matrix");
    diag_help(m->f->diag, "the file should hold what 'nvidia-smi topo -m' prints");
    return false;
}

/* what a cell says of NVLink; false for a word that stands in no matrix */
static bool read_cell(struct span cell, uint32_t *links)
{
    static const char *const paths[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "PSB"};
    *links = 0;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (line_word_is(cell, paths[i]))
            return true;
    struct span number = {cell.source, cell.start + 2, cell.length - 2};
    return cell.length > 2 && !memcmp(cell.source->text + cell.start, "NV", 2) && line_number(number, links) &&
           *links >= 1 && *links <= 64;
}

/* the cells of GPU `row`, behind its name */
static bool read_row(struct matrix *m, struct line *l, uint32_t row)
{
    struct span cell, name = m->columns[row];
    for (uint32_t k = 0; k < m->ncolumns; k++) {
        uint32_t links;
        if (!line_word(l, &cell)) {
            diag_error(m->f->diag, (struct span){m->source, (uint32_t)l->end, 0}, "bad-matrix",
                       "the row of %.*s ends after %u of %u devices", (int)name.length, m->source->text + name.start, k,
                       m->ncolumns);
            return false;
        }
        if (!read_cell(cell, &links)) {
            diag_error(m->f->diag, cell, "bad-matrix", "no word of such a matrix");
            diag_caret(m->f->diag, "X, NV#, PIX, PXB, PHB, NODE or SYS");
            return false;
        }
        if ((k == row) != line_word_is(cell, "X")) {
            diag_error(m->f->diag, cell, "bad-matrix", "X stands where a device meets itself, and only there");
            return false;
        }
        if (k >= m->ngpus)
            continue;
        m->links[row * m->ngpus + k] = links;
        m->cells[row * m->ngpus + k] = cell;
        if (k < row && m->links[k * m->ngpus + row] != links) {
            diag_error(m->f->diag, cell, "bad-matrix", "the other direction has other links");
            diag_note(m->f->diag, m->cells[k * m->ngpus + row], "here");
            return false;
        }
    }
    return true;
}

static bool read_rows(struct matrix *m, struct line *l)
{
    struct span word;
    for (uint32_t row = 0; row < m->ngpus;) {
        if (!line_next(l)) {
            word = (struct span){m->source, (uint32_t)m->source->size, 0};
        } else {
            if (!line_word(l, &word))
                continue;
            if (same_word(word, m->columns[row])) {
                if (!read_row(m, l, row++))
                    return false;
                continue;
            }
        }
        diag_error(m->f->diag, word, "bad-matrix", "the row of %.*s is missing", (int)m->columns[row].length,
                   m->source->text + m->columns[row].start);
        return false;
    }
    return true;
}

bool cluster_read_nvidia_smi(struct cluster_facts *f, const struct cluster_file *file)
{
    struct matrix *m = ARENA_NEW(f->arena, struct matrix);
    struct line l = line_first(file->source);
    m->f = f;
    m->source = file->source;
    if (!read_heading(m, &l))
        return false;
    for (uint32_t i = 0; i < m->ncolumns; i++)
        if ((i < m->ngpus) != is_gpu(m->columns[i])) {
            diag_error(f->diag, m->columns[i], "bad-matrix", "a GPU behind other devices");
            return false;
        }
    if (!read_rows(m, &l) || !cluster_say_count(f, KEY_GPUS, m->ngpus, m->columns[0]))
        return false;
    uint32_t nics = m->ncolumns - m->ngpus;
    if (nics)
        cluster_guess(f, KEY_NICS, arena_printf(f->arena, "%u", nics), m->columns[m->ngpus]);
    return m->ngpus == 1 || cluster_say_links(f, m->ngpus, m->links, false, m->columns[0]);
}
