/* The train block that settings of Megatron-LM describe.  Steps that are counted in samples become whole steps of the
 * global batch. */

#include "compiler/import/megatron.h"

#include <math.h>
#include <string.h>

static const char *number(const struct args *x, double value)
{
    return describe_number(x->givens->arena, value);
}

/* a dtype as arguments have it, or torch's: bf16, torch.bfloat16 */
static bool is_type(const struct args *x, unsigned row, const char *name, const char *torch)
{
    const char *word = arg_word(x, row), *dot = strrchr(word, '.');
    return !strcmp(word, name) || !strcmp(dot ? dot + 1 : word, torch);
}

/* of bf16(...) and fp8(...): what differs from the language's defaults */
static void formats(const struct args *x, struct strbuf *b, bool fp16)
{
    /* arguments.py: bf16 adds gradients up in fp32 unless it is told to send them in 16 bits, fp16 only when it is
     * told; a configuration says it itself */
    bool wide = fp16 || !x->givens->dashes ? arg_yes(x, A_accumulate_allreduce_grads_in_fp32)
                                           : !arg_yes(x, A_grad_reduce_in_bf16);
    if (!x->givens->dashes && !arg_said(x, A_accumulate_allreduce_grads_in_fp32))
        wide = !arg_yes(x, A_grad_reduce_in_bf16);
    if (!wide)
        strbuf_printf(b, "%s=%s, ", "grads", fp16 ? "fp16" : "bf16");
    bool first = is_type(x, A_exp_avg_dtype, "bf16", "bfloat16"),
         second = is_type(x, A_exp_avg_sq_dtype, "bf16", "bfloat16");
    if (first && second)
        strbuf_text(b, "moments=bf16, ");
    else if (first || !is_type(x, A_exp_avg_dtype, "fp32", "float32"))
        arg_refuse(x, A_exp_avg_dtype, "moments in '%.60s' and '%.60s'", arg_word(x, A_exp_avg_dtype),
                   arg_word(x, A_exp_avg_sq_dtype));
    else if (second || !is_type(x, A_exp_avg_sq_dtype, "fp32", "float32"))
        arg_refuse(x, A_exp_avg_sq_dtype, "moments in 'fp32' and '%.60s'", arg_word(x, A_exp_avg_sq_dtype));
    if (!is_type(x, A_main_params_dtype, "fp32", "float32"))
        arg_refuse(x, A_main_params_dtype, "master weights in '%.60s'", arg_word(x, A_main_params_dtype));
    if (!is_type(x, A_main_grads_dtype, "fp32", "float32"))
        arg_refuse(x, A_main_grads_dtype, "the optimizer's gradients in '%.60s'", arg_word(x, A_main_grads_dtype));
}

static void eight(const struct args *x, struct strbuf *b)
{
    static const struct {
        const char *recipe, *words;
    } recipes[] = {{"tensorwise", ""}, {"delayed", ""}, {"blockwise", "recipe=block, "}, {"mxfp8", "recipe=mx, "}};
    const char *recipe = arg_word(x, A_fp8_recipe);
    size_t i = 0;
    while (i < ARRAY_LEN(recipes) && strcmp(recipe, recipes[i].recipe) != 0)
        i++;
    if (i == ARRAY_LEN(recipes))
        arg_refuse(x, A_fp8_recipe, "8 bits by recipe '%.60s'", recipe);
    else
        strbuf_text(b, recipes[i].words);
    if (!strcmp(recipe, "delayed"))
        given_note(x->givens, "fp8 recipe delayed: a scale for each tensor, as of earlier steps");
    if (arg_is(x, A_moe_dispatch_fwd_dtype, "mxfp8"))
        strbuf_text(b, "dispatch=fp8, ");
}

static void precision(const struct args *x, struct strbuf *b)
{
    bool bf16 = arg_yes(x, A_bf16), fp16 = arg_yes(x, A_fp16), fp8 = arg_said(x, A_fp8);
    if (bf16 && fp16)
        arg_error(x, A_fp16, "both bf16 and fp16");
    if (fp8 && fp16)
        arg_refuse(x, A_fp8, "8 bits beside fp16");
    if (!bf16 && !fp16) {
        if (fp8)
            arg_refuse(x, A_fp8, "8 bits beside fp32");
        strbuf_text(b, "precision fp32\n");
        return;
    }
    struct strbuf in = {0};
    formats(x, &in, fp16 && !bf16);
    if (fp8 && bf16)
        eight(x, &in);
    if (fp16 && arg_real(x, A_initial_loss_scale) != 4294967296.0)
        strbuf_printf(&in, "scale=%s, ", number(x, arg_real(x, A_initial_loss_scale)));
    if (fp16 && arg_real(x, A_loss_scale_window) != 1000)
        strbuf_printf(&in, "window=%s, ", number(x, arg_real(x, A_loss_scale_window)));
    if (fp16 && arg_count(x, A_hysteresis) != 2)
        strbuf_printf(&in, "hysteresis=%s, ", number(x, (double)arg_count(x, A_hysteresis)));
    strbuf_printf(b, "precision %s", fp8 && bf16 ? "fp8" : bf16 ? "bf16" : "fp16");
    if (in.length)
        strbuf_printf(b, "(%.*s)", (int)in.length - 2, in.text);
    strbuf_char(b, '\n');
    strbuf_free(&in);
}

static void optimizer(const struct args *x, struct strbuf *b)
{
    const char *kind = arg_word(x, A_optimizer), *lr = number(x, arg_said(x, A_lr) ? arg_real(x, A_lr) : 3e-4);
    if (!strcmp(kind, "sgd")) {
        strbuf_printf(b, "optimizer sgd(lr=%s, momentum=%s)\n", lr, number(x, arg_real(x, A_sgd_momentum)));
        return;
    }
    if (strcmp(kind, "adam") != 0)
        arg_refuse(x, A_optimizer, "optimizer '%.60s'", kind);
    strbuf_printf(b, "optimizer adamw(lr=%s, beta1=%s, beta2=%s, eps=%s, weight_decay=%s)\n", lr,
                  number(x, arg_real(x, A_adam_beta1)), number(x, arg_real(x, A_adam_beta2)),
                  number(x, arg_real(x, A_adam_eps)), number(x, arg_real(x, A_weight_decay)));
}

/* steps that are said in steps or in samples; 0: not at all */
static uint64_t steps(const struct args *x, unsigned iterations, unsigned samples)
{
    return arg_said(x, iterations) && arg_count(x, iterations) ? arg_count(x, iterations) : megatron_steps(x, samples);
}

/* what is asked of the run's length is left open by a script that asks its caller for it */
static uint64_t run_steps(const struct args *x)
{
    struct given *at = arg_find(x, A_train_iters);
    if (at && at->n == 1 && strchr(at->values[0], GIVEN_OPEN)) {
        at->wrong = true; /* and no error */
        return 0;
    }
    return steps(x, A_train_iters, A_train_samples);
}

static void schedule(const struct args *x, struct strbuf *b)
{
    const char *style = arg_word(x, A_lr_decay_style);
    uint64_t run = run_steps(x), said = steps(x, A_lr_decay_iters, A_lr_decay_samples), decay = said ? said : run;
    uint64_t warmup = steps(x, A_lr_warmup_iters, A_lr_warmup_samples);
    double share = arg_real(x, A_lr_warmup_fraction), least = arg_real(x, A_min_lr);
    bool wsd = !strcmp(style, "WSD"), known = wsd || !strcmp(style, "linear") || !strcmp(style, "cosine");
    if (share > 0 && share <= 1 && !warmup)
        warmup = (uint64_t)(share * (double)decay);
    if (!known && strcmp(style, "constant") != 0)
        arg_refuse(x, A_lr_decay_style, "a learning rate that decays by '%.60s'", style);
    if (!known || (!run && !said && !wsd)) { /* a rate that falls until the last step, of a run without one */
        if (known)
            given_note(x->givens,
                       "the learning rate decays until a last step that is not said: it is written as constant");
        if (warmup)
            strbuf_printf(b, "lr_schedule constant(warmup=%s)\n", number(x, (double)warmup));
        return;
    }
    if (wsd) {
        uint64_t fall = steps(x, A_lr_wsd_decay_iters, A_lr_wsd_decay_samples);
        if (!arg_is(x, A_lr_wsd_decay_style, "linear"))
            arg_refuse(x, A_lr_wsd_decay_style, "a last fall of the learning rate of form '%.60s'",
                       arg_word(x, A_lr_wsd_decay_style));
        uint64_t stable = decay > warmup + fall ? decay - warmup - fall : 0;
        strbuf_printf(b, "lr_schedule wsd(warmup=%s, stable=%s, decay=%s", number(x, (double)warmup),
                      number(x, (double)stable), number(x, (double)fall));
    } else {
        strbuf_printf(b, "lr_schedule %s(warmup=%s", style, number(x, (double)warmup));
        if (said && said != run)
            strbuf_printf(b, ", decay=%s", number(x, (double)said));
    }
    if (least > 0)
        strbuf_printf(b, ", min=%s", number(x, least));
    strbuf_text(b, ")\n");
}

static uint64_t batch(const struct args *x)
{
    uint64_t n = arg_count(x, A_global_batch_size), each = arg_count(x, A_micro_batch_size), dp = megatron_dp(x);
    if (n || arg_said(x, A_global_batch_size))
        return n;
    if (!each || !dp || each > UINT32_MAX || dp > UINT32_MAX) {
        arg_error(x, A_global_batch_size, "'%s' is missing, and without the number of ranks it does not follow",
                  arg_name(x, A_global_batch_size));
        return 0;
    }
    return each * dp; /* arguments.py: a microbatch for each replica */
}

void megatron_train(const struct args *x, struct strbuf *b)
{
    uint64_t sequence = arg_count(x, A_seq_length), n = batch(x), run = run_steps(x);
    if (!arg_said(x, A_seq_length))
        arg_error(x, A_seq_length, "'%s' is missing", arg_name(x, A_seq_length));
    strbuf_printf(b, "sequence %s\n", number(x, (double)sequence));
    strbuf_printf(b, "batch %s sequences\n", number(x, (double)n));
    precision(x, b);
    optimizer(x, b);
    schedule(x, b);
    double clip = arg_real(x, A_clip_grad);
    strbuf_printf(b, "clip %s\n", clip > 0 ? number(x, clip) : "none");
    strbuf_printf(b, "init normal(std=%s)\n", number(x, arg_real(x, A_init_method_std)));
    strbuf_printf(b, "seed %s\n", number(x, (double)arg_count(x, A_seed)));
    double total = (double)run * (double)n * (double)sequence;
    if (total > 0 && total < 9e15)
        strbuf_printf(b, "total %s tokens\n", number(x, total));
}
