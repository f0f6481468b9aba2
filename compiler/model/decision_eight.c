/* Where `activations=fp8` can be emitted: what is kept in 8 bits is no input of what runs again, which would make
 * something else of it than the forward pass did; but for gate and up, of which activations are made again as
 * DeepSeek-V3 does (arXiv 2412.19437, section 3.3.3). */

#include "compiler/model/backward.h"
#include "compiler/model/decision.h"

static bool refuse(const char **why, const char *what)
{
    *why = what;
    return false;
}

static bool reruns_eight(struct arena *a, const struct decision *d, uint32_t again, const struct expansion *e)
{
    struct backward b = backward_new(a, e, again, decision_exchanges_heads(d));
    return backward_reruns_eight(e, &b, backward_eight(a, e), again);
}

bool decision_keeps_eight(struct arena *a, const struct job *job, const struct decision *d, const char **why)
{
    uint32_t again = backward_again(d->recompute, d->parts);
    if (job->wishes.offload & OFFLOAD_ACTIVATIONS)
        return refuse(why, "activations=fp8 with activations in host memory");
    if (job->model.norm.place == NORM_POST)
        return refuse(why, "activations=fp8 with norms behind sublayers alone");
    bool reruns = false;
    struct arena_mark mark = arena_mark(a);
    for (uint32_t i = 0; i < job->model.nlayers; i++)
        if (!i || job->model.layers[i] != job->model.layers[i - 1])
            reruns |= reruns_eight(a, d, again, expand_layer(a, &job->model, job->model.layers[i]));
    for (uint32_t k = 1; k <= job->model.predict; k++)
        reruns |= reruns_eight(a, d, again, expand_predict(a, &job->model, k));
    arena_reset(a, mark);
    return !reruns || refuse(why, "activations=fp8 with recomputation from what is kept so");
}
