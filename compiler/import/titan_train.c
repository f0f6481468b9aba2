/* The train block of a torchtitan configuration. */

#include "compiler/import/titan_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *number(const struct args *x, double value)
{
    return describe_number(x->givens->arena, value);
}

/* converters that put products into 8 bits: "float8", "quantize.linear.float8", "mx" */
static void precision(const struct args *x, struct strbuf *b)
{
    uint32_t n;
    const char *const *converters = arg_words(x, T_model_converters, &n), *recipe = NULL;
    const char *moments = arg_is(x, T_optimizer_implementation, "fused_opt_states_bf16") ? "moments=bf16" : "";
    for (uint32_t i = 0; i < n; i++)
        if (strstr(converters[i], "float8") && !strstr(converters[i], "grouped"))
            recipe = !*arg_word(x, T_float8_recipe_name) || arg_is(x, T_float8_recipe_name, "tensorwise")
                         ? "recipe=tensor"
                     : arg_is(x, T_float8_recipe_name, "rowwise") ? "recipe=row"
                                                                  : "";
        else if (!strcmp(converters[i], "mx") || strstr(converters[i], ".mx"))
            recipe = "recipe=mx";
        else
            arg_refuse(x, T_model_converters, "the converter '%.60s'", converters[i]);
    if (recipe && !*recipe)
        arg_refuse(x, T_float8_recipe_name, "8 bits by recipe '%.60s'", arg_word(x, T_float8_recipe_name));
    bool pure = arg_is(x, T_training_dtype, "bfloat16");
    if (!pure && !arg_is(x, T_training_dtype, "float32"))
        arg_refuse(x, T_training_dtype, "parameters in '%.60s'", arg_word(x, T_training_dtype));
    if (arg_is(x, T_training_mixed_precision_param, "float32") && !pure && !recipe)
        strbuf_text(b, "precision fp32\n");
    else if (pure)
        strbuf_printf(b, "precision %s(master=bf16, grads=bf16, moments=bf16%s%s)\n", recipe ? "fp8" : "bf16",
                      recipe ? ", " : "", recipe ? recipe : "");
    else if (recipe)
        strbuf_printf(b, "precision fp8(%s%s%s)\n", recipe, *moments ? ", " : "", moments);
    else
        strbuf_printf(b, *moments ? "precision bf16(%s)\n" : "precision bf16\n", moments);
}

static void optimizer(const struct args *x, struct strbuf *b)
{
    uint32_t n;
    const char *const *betas = arg_words(x, T_optimizer_betas, &n);
    double beta1 = n == 2 ? strtod(betas[0], NULL) : arg_real(x, T_optimizer_beta1),
           beta2 = n == 2 ? strtod(betas[1], NULL) : arg_real(x, T_optimizer_beta2);
    if (!isfinite(beta1) || !isfinite(beta2))
        arg_error(x, T_optimizer_betas, "two numbers are wanted");
    if (!arg_is(x, T_optimizer_name, "AdamW"))
        arg_refuse(x, T_optimizer_name, "optimizer '%.60s'", arg_word(x, T_optimizer_name));
    strbuf_printf(b, "optimizer adamw(lr=%s, beta1=%s, beta2=%s, eps=%s, weight_decay=%s)\n",
                  number(x, arg_real(x, T_optimizer_lr)), number(x, beta1), number(x, beta2),
                  number(x, arg_real(x, T_optimizer_eps)), number(x, arg_real(x, T_optimizer_weight_decay)));
}

static void schedule(const struct args *x, struct strbuf *b)
{
    const char *type = arg_word(x, T_lr_scheduler_decay_type);
    uint64_t warmup = arg_count(x, T_lr_scheduler_warmup_steps), steps = arg_count(x, T_training_steps),
             total = arg_said(x, T_lr_scheduler_total_steps) ? arg_count(x, T_lr_scheduler_total_steps) : steps;
    double share = arg_real(x, T_lr_scheduler_decay_ratio),
           least = arg_real(x, T_optimizer_lr) * arg_real(x, T_lr_scheduler_min_lr_factor);
    least = strtod(arena_printf(x->givens->arena, "%.12g", least), NULL); /* 0.1 * 3e-4 is 3e-5 */
    bool part = arg_said(x, T_lr_scheduler_decay_ratio) && share > 0 && share < 1;
    uint64_t fall = part ? (uint64_t)lround(share * (double)total) : 0;
    if (strcmp(type, "linear") != 0 && (part || strcmp(type, "cosine") != 0)) {
        arg_refuse(x, T_lr_scheduler_decay_type, "a learning rate that falls by '%.60s'%s", type,
                   part ? " in the last part of the run" : "");
        type = "linear";
    }
    if (part && fall)
        strbuf_printf(b, "lr_schedule wsd(warmup=%s, stable=%s, decay=%s", number(x, (double)warmup),
                      number(x, total > warmup + fall ? (double)(total - warmup - fall) : 0), number(x, (double)fall));
    else
        strbuf_printf(b, "lr_schedule %s(warmup=%s", type, number(x, (double)warmup));
    if (!(part && fall) && total != steps)
        strbuf_printf(b, ", decay=%s", number(x, (double)total));
    if (least > 0)
        strbuf_printf(b, ", min=%s", number(x, least));
    strbuf_text(b, ")\n");
}

void titan_train(const struct args *x, const struct titan_batch *n, struct strbuf *b)
{
    double clip = arg_real(x, T_training_max_norm), total = (double)arg_count(x, T_training_steps);
    strbuf_printf(b, "sequence %s\n", number(x, (double)n->sequence));
    strbuf_printf(b, "batch %s sequences\n", number(x, (double)n->batch));
    precision(x, b);
    optimizer(x, b);
    schedule(x, b);
    strbuf_printf(b, "clip %s\n", clip > 0 ? number(x, clip) : "none");
    if (arg_said(x, T_debug_seed))
        strbuf_printf(b, "seed %s\n", number(x, (double)arg_count(x, T_debug_seed)));
    total *= (double)n->batch * (double)n->sequence;
    if (total > 0 && total < 9e15)
        strbuf_printf(b, "total %s tokens\n", number(x, total));
}
