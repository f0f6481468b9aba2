/* What the cluster file measured of kernels, and the cores that CPU ranks share.
 *
 * Products and attention: where one roofline is all that is known of the device (CPU ranks), at the rate of the nearest
 * measured shape in log space.  Of a GPU's products the formula, times measured over predicted seconds, on the mean of
 * all shapes by the inverse fourth power of their distance; of its attention the same by the nearest shape alone.
 * Memory-bound instructions: seconds between two points by bytes, above them in proportion to the last one; below the
 * first one too, but on a GPU, where a smaller kernel takes as long. Where a node type has cores, such times are those
 * of a rank that has one, and collectives' those of one group that has the machine: a rank of more than there are cores
 * is busy for its turns of them (comm.c).  R ranks on fewer cores take turns: in closed form all of their work R /
 * cores times as long; in the simulation (simulate/share.c) as many as have something to do. */

#include "compiler/cost/cost_private.h"
#include "compiler/support/real.h"

#include <math.h>
#include <string.h>

static const char *const words[COST_NNUMBERS] = {[COST_F32] = "fp32", [COST_HALF] = "bf16", [COST_FP8] = "fp8"};

static bool fits(const struct cost *c, const struct topo_measured *t, const char *kind, enum cost_number number)
{
    return !strcmp(t->kind, kind) && (!t->type || !strcmp(t->type, c->type->id)) &&
           (!t->dtype || !strcmp(t->dtype, words[number]));
}

static double apart(const struct topo_point *p, double m, double n, double k)
{
    return fabs(real_log(m / p->m)) + fabs(real_log(n / p->n)) + fabs(real_log(k / p->k));
}

double cost_measured_product_flop_s(const struct cost *c, double m, double n, double k, enum cost_number number)
{
    double least = INFINITY, flop_s = 0;
    for (uint32_t i = 0; i < c->topo->nmeasured; i++) {
        const struct topo_measured *t = &c->topo->measured[i];
        for (uint32_t j = 0; fits(c, t, "gemm", number) && j < t->npoints; j++) {
            double distance = apart(&t->points[j], m, n, k);
            if (distance < least) {
                least = distance;
                flop_s = t->points[j].flop_s;
            }
        }
    }
    /* beyond a total factor of 16, the measured shape says too little about this one */
    return least < 2.8 ? flop_s : 0;
}

double cost_measured_product_share(const struct cost *c, double m, double n, double k, enum cost_number number,
                                   double (*formula_s)(const struct cost *c, const struct topo_point *at,
                                                       void *context),
                                   void *context)
{
    double sum = 0, weights = 0;
    for (uint32_t i = 0; i < c->topo->nmeasured; i++) {
        const struct topo_measured *t = &c->topo->measured[i];
        for (uint32_t j = 0; fits(c, t, "gemm", number) && j < t->npoints; j++) {
            const struct topo_point *p = &t->points[j];
            double share = 2 * p->m * p->n * p->k / p->flop_s / formula_s(c, p, context), distance = apart(p, m, n, k);
            if (distance < 1e-9)
                return share;
            double weight = 1 / (distance * distance * distance * distance);
            sum += weight * share;
            weights += weight;
        }
    }
    return weights > 0 ? sum / weights : 0;
}

const struct topo_point *cost_measured_attention(const struct cost *c, double places, double head,
                                                 enum cost_number number)
{
    const struct topo_point *best = NULL;
    double least = INFINITY;
    for (uint32_t i = 0; i < c->topo->nmeasured; i++) {
        const struct topo_measured *t = &c->topo->measured[i];
        for (uint32_t j = 0; fits(c, t, "attention", number) && j < t->npoints; j++) {
            const struct topo_point *p = &t->points[j];
            double distance = fabs(real_log(places / p->m)) + fabs(real_log(head / p->n));
            if (distance < least) {
                least = distance;
                best = p;
            }
        }
    }
    return best;
}

double cost_measured_stream_s(const struct cost *c, enum op op, double bytes, bool half)
{
    for (uint32_t i = 0; i < c->topo->nmeasured; i++) {
        const struct topo_measured *t = &c->topo->measured[i];
        if (t->op != op || !fits(c, t, "kernel", half ? COST_HALF : COST_F32))
            continue;
        const struct topo_point *p = t->points, *last = p + t->npoints - 1;
        if (bytes <= p->bytes)
            return c->type->gpu.sm ? p->seconds : p->seconds * bytes / p->bytes;
        if (bytes >= last->bytes)
            return last->seconds * bytes / last->bytes;
        while (bytes > p[1].bytes)
            p++;
        return p->seconds + (p[1].seconds - p->seconds) * (bytes - p->bytes) / (p[1].bytes - p->bytes);
    }
    return 0;
}

double cost_crowd(const struct cost *c)
{
    const struct decision *d = c->decision;
    double ranks = (double)d->tp * d->cp * d->pp * d->dp / (d->nnodes ? d->nnodes : 1);
    return c->type->cores ? fmax(1, ranks / c->type->cores) : 1;
}
