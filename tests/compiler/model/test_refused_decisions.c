/* Sentences of decision_legal() and decision_emittable() that test_decision.c does not come to: a legal
 * decision, one thing of it or of its job changed, and the sentence; where a rule has a bound, also the last
 * value that it lets pass. */

#include "tests/compiler/model/given.h"

#include <CUnit/CUnit.h>
#include <math.h>
#include <string.h>

void suite_refused_decisions(void);

static void experts(struct given *g)
{
    g->layer->is_moe = true;
    g->layer->moe = (struct moe){.expert = g->layer->ffn, .experts = 8, .active = 2};
    g->layer->moe.expert.width = 512;
}

/* key heads of the last layer; all others' are `kv` */
static void other_keys(struct given *g, uint32_t kv, uint32_t last)
{
    struct layer *l = ARENA_NEW(g->a, struct layer);
    g->layer->attn.kv = kv;
    *l = *g->layer;
    l->attn.kv = last;
    g->job->model.layers[g->job->model.nlayers - 1] = l;
}

/* one change per function, by name of what it breaks */
#define CHANGE(name, ...)                                                                                    \
    static void name(struct given *g)                                                                        \
    {                                                                                                        \
        __VA_ARGS__;                                                                                         \
    }
CHANGE(room_below, g->d.room = -0.5)
CHANGE(room_above, g->d.room = 65537)
CHANGE(room_nan, g->d.room = NAN)
CHANGE(room_most, g->d.room = 65536)
CHANGE(prefetch_zero_2, g->d.zero = 2; g->d.prefetch = 1)
CHANGE(prefetch_65, g->d.zero = 3; g->d.prefetch = 65)
CHANGE(prefetch_64, g->d.zero = 3; g->d.prefetch = 64)
CHANGE(shard_zero_0, g->d.zero = 0)
CHANGE(key_heads, g->layer->attn.heads = 12; g->layer->attn.kv = 3)
CHANGE(key_heads_shared, g->layer->attn.kv = 1)
CHANGE(key_heads_exchanged, g->layer->attn.kv = 1; g->d.cp = 2; g->d.dp = 1; g->d.shard = 2; g->d.microbatches = 8;
       g->d.context = CONTEXT_ALL_TO_ALL)
CHANGE(key_heads_ring, g->layer->attn.kv = 1; g->d.cp = 2; g->d.dp = 1; g->d.microbatches = 8)
CHANGE(key_heads_apart, other_keys(g, 2, 4); g->d.tp = 8; g->d.pp = g->d.dp = g->d.shard = 1; g->d.microbatches = 8)
CHANGE(key_heads_here_and_there, other_keys(g, 1, 4))
CHANGE(ffn_width, g->layer->ffn.width = 511)
CHANGE(expert_width, experts(g); g->d.etp = 4; g->layer->moe.expert.width = 510)
CHANGE(expert_count, experts(g); g->d.ep = 4; g->layer->moe.experts = 6)
CHANGE(shared_width, experts(g); g->layer->moe.expert.width = 3; g->layer->moe.shared = 1)
CHANGE(shared_even, experts(g); g->layer->moe.expert.width = 3; g->layer->moe.shared = 2)
CHANGE(all_nodes, experts(g); g->d.ep = 4; g->d.ep_nodes = 4)
CHANGE(three_nodes, experts(g); g->d.ep = 4; g->d.ep_nodes = 3)
CHANGE(two_nodes, experts(g); g->d.ep = 4; g->d.ep_nodes = 2)
CHANGE(many_experts, experts(g); g->d.ep = 8)
CHANGE(cut_sequence, g->job->train.sequence = 66; g->d.cp = 2; g->d.dp = 1; g->d.microbatches = 8)
CHANGE(sp_alone, g->d.tp = 1; g->d.dp = 4; g->d.microbatches = 2)
CHANGE(sp_odd, g->job->train.sequence = 63; g->d.microbatch = 1; g->d.microbatches = 8)
CHANGE(sp_even, g->job->train.sequence = 63)
CHANGE(folded, g->d.folds = true)
CHANGE(vpp_65, g->d.schedule = SCHED_INTERLEAVED; g->d.vpp = 65; g->d.nstages = 130)
CHANGE(vpp_alone, g->d.schedule = SCHED_INTERLEAVED; g->d.vpp = 2; g->d.pp = 1; g->d.dp = 4;
       g->d.microbatches = 2; g->d.nstages = 2)
CHANGE(small_groups, g->d.schedule = SCHED_INTERLEAVED; g->d.vpp = 2; g->d.nstages = 4;
       g->d.schedule_group = 1)
CHANGE(small_rest, g->d.schedule = SCHED_INTERLEAVED; g->d.vpp = 2; g->d.nstages = 4; g->d.schedule_group = 3)
CHANGE(spared, g->d.stages[1].spared = 1)
CHANGE(spared_more, g->d.recompute = RECOMPUTE_FULL; g->d.stages[0].spared = 4)
CHANGE(spared_all, g->d.recompute = RECOMPUTE_FULL; g->d.stages[0].spared = 3)
CHANGE(spared_other, g->d.recompute = RECOMPUTE_FULL; g->d.recompute_layers = 2)
CHANGE(embed_twice, g->d.stages[1].embed = true)
CHANGE(no_head, g->d.stages[1].head = false)
CHANGE(no_node_type, g->d.type = 1)

static const struct {
    void (*change)(struct given *g);
    const char *why; /* NULL: legal */
} legal[] = {
    {room_below, "expert_room = -0.5 is out of range"},
    {room_above, "expert_room = 65537 is out of range"},
    {room_nan, "expert_room = nan is out of range"},
    {room_most, NULL},
    {prefetch_zero_2, "prefetch = 1: parameters are gathered at most 64 uses ahead, under zero 3"},
    {prefetch_65, "prefetch = 65: parameters are gathered at most 64 uses ahead, under zero 3"},
    {prefetch_64, NULL},
    {shard_zero_0, "shard = 2 needs zero >= 1"},
    {key_heads, "tp = 2 does not divide kv = 3, nor kv tp"},
    {key_heads_shared, NULL},
    {key_heads_exchanged, "cp = 2 by all_to_all does not divide the 4 heads (kv 1) of a tp rank"},
    {key_heads_ring, NULL},
    {key_heads_apart, "tp = 8: key heads lie on 4 ranks each in some layers, on 2 in others"},
    {key_heads_here_and_there, NULL},
    {ffn_width, "tp = 2 does not divide the FFN's width = 511"},
    {expert_width, "etp = 4 does not divide the experts' width = 510"},
    {expert_count, "ep = 4 does not divide experts = 6"},
    {shared_width, "tp = 2 does not divide the shared experts' width"},
    {shared_even, NULL},
    {all_nodes, "4 nodes do not divide ep = 4"},
    {three_nodes, "3 nodes do not divide ep = 4"},
    {two_nodes, NULL},
    {many_experts, "ep * etp = 8 does not divide tp * cp * dp = 4"},
    {cut_sequence, "cp = 2: the sequence of 66 tokens is not a multiple of 2 * cp"},
    {sp_alone, "sequence parallelism needs tp > 1"},
    {sp_odd, "sequence parallelism: tp = 2 does not divide the 63 tokens of a microbatch"},
    {sp_even, NULL},
    {folded, "folded placement has two stages per rank and comes with its schedule"},
    {vpp_65, "vpp = 65: at most 64 chunks per rank"},
    {vpp_alone, "vpp = 2 needs pp > 1"},
    {small_groups, "interleaved: groups of 1 microbatches are smaller than pp = 2"},
    {small_rest, "interleaved: a last group of 1 microbatches is smaller than pp = 2"},
    {spared, "stage 1 spares 1 of 3 layers from recomputation"},
    {spared_more, "stage 0 spares 4 of 3 layers from recomputation"},
    {spared_all, NULL},
    {spared_other, "stage 0 recomputes 3 layers, not the 2 asked for"},
    {embed_twice, "the embedding belongs to the first stage and the head to the last"},
    {no_head, "the embedding belongs to the first stage and the head to the last"},
    {no_node_type, "node type 1 does not exist"},
};

CHANGE(tokens, g->d.microbatch = 1u << 25)
CHANGE(tokens_most, g->d.microbatch = (1u << 25) - 1)
CHANGE(weights, g->job->model.vocab = 1u << 30)
CHANGE(weights_most, g->job->model.vocab = (1u << 30) - 1)
CHANGE(instructions, g->d.microbatches = 9533)
CHANGE(instructions_most, g->d.microbatches = 9532)
CHANGE(full_norm, g->layer->attn.qk_norm = QK_NORM_FULL)
CHANGE(full_norm_alone, g->layer->attn.qk_norm = QK_NORM_FULL; g->d.tp = 1)
CHANGE(sinks, g->layer->attn.sinks = true; g->d.cp = 2; g->d.context = CONTEXT_ALL_TO_ALL)
CHANGE(sinks_ring, g->layer->attn.sinks = true; g->d.cp = 2; g->d.context = CONTEXT_RING; g->d.dp = 1; g->d.shard = 1)
CHANGE(alibi, g->layer->attn.alibi = true; g->d.cp = 2; g->d.context = CONTEXT_ALL_TO_ALL)
CHANGE(alibi_gathered, g->layer->attn.alibi = true; g->d.cp = 2; g->d.context = CONTEXT_ALL_GATHER; g->d.dp = 1; g->d.shard = 1)
CHANGE(chunks_within, g->layer->attn.chunk = 16; g->d.cp = 2; g->d.context = CONTEXT_RING; g->d.dp = 1; g->d.shard = 1)
CHANGE(chunks_exchanged, chunks_within(g); g->d.context = CONTEXT_ALL_TO_ALL)
CHANGE(sinks_alone, g->layer->attn.sinks = true; g->d.context = CONTEXT_ALL_TO_ALL)
CHANGE(chunk_rest, g->job->train.sequence = 64; g->layer->attn.chunk = 7)
CHANGE(chunk_split, g->job->train.sequence = 64; g->layer->attn.chunk = 32; g->d.cp = 2; g->d.dp = 1; g->d.shard = 1; g->d.microbatches = 8;
       g->d.context = CONTEXT_ALL_TO_ALL)
CHANGE(chunk_even, g->job->train.sequence = 64; g->layer->attn.chunk = 32)
CHANGE(chunk_whole, g->job->train.sequence = 64; g->layer->attn.chunk = 65; g->d.cp = 2; g->d.dp = 1; g->d.shard = 1; g->d.microbatches = 8;
       g->d.context = CONTEXT_RING)
CHANGE(expert_bias, experts(g); g->layer->moe.expert.bias = true)
CHANGE(expert_bias_cut, experts(g); g->layer->moe.expert.bias = true; g->d.etp = 2)
CHANGE(expert_bias_shared, experts(g); g->layer->moe.expert.bias = true; g->layer->moe.shared = 2)
CHANGE(expert_tp, experts(g); g->d.sp = false)
CHANGE(expert_sp, experts(g))
CHANGE(capacity_cp, experts(g); g->layer->moe.capacity = 1.25; g->d.cp = 2; g->d.dp = 1; g->d.shard = 1)
CHANGE(capacity_tp, experts(g); g->layer->moe.capacity = 1.25; g->d.microbatch = 3)
CHANGE(capacity, experts(g); g->layer->moe.capacity = 1.25)
CHANGE(pairs, g->job->wishes.overlap = OVERLAP_ALL_TO_ALL)
static const struct profile other = {.allocator = 1};
CHANGE(overlap_tp, g->job->wishes.overlap = OVERLAP_TP)
CHANGE(overlap_tp_other, g->job->wishes.overlap = OVERLAP_TP; g->job->wishes.profile = &other;
       g->job->wishes.profile_name = "other")
CHANGE(overlap_cp, g->job->wishes.overlap = OVERLAP_CP; g->d.cp = 2; g->d.context = CONTEXT_ALL_GATHER)
CHANGE(overlap_ring, g->job->wishes.overlap = OVERLAP_CP; g->d.context = CONTEXT_RING)
CHANGE(never_pp, g->job->wishes.never_overlap = OVERLAP_PP)
CHANGE(never_dp, g->job->wishes.never_overlap = OVERLAP_DP; g->d.zero = 3; g->d.prefetch = 2)
CHANGE(never_dp_alone, g->job->wishes.never_overlap = OVERLAP_DP; g->d.zero = 3)
CHANGE(skew_sgd, g->job->wishes.post_validation = true; g->d.schedule = SCHED_ZB_H2;
       g->job->train.optimizer = OPT_SGD)
CHANGE(skew_host, g->job->wishes.post_validation = true; g->d.schedule = SCHED_ZB_H2;
       g->job->wishes.offload = OFFLOAD_OPTIMIZER)
CHANGE(skew_experts, experts(g); g->job->wishes.post_validation = true; g->d.schedule = SCHED_ZB_V)
CHANGE(skew, g->job->wishes.post_validation = true; g->d.schedule = SCHED_ZB_H2)
CHANGE(skew_one, g->job->wishes.post_validation = true; g->d.schedule = SCHED_ZB_H2; g->d.pp = 1;
       g->job->train.optimizer = OPT_SGD)
CHANGE(eight, g->job->train.precision = DT_FP8; g->job->train.fp8_kept = true)
CHANGE(eight_norm, eight(g); g->d.recompute = RECOMPUTE_SELECTIVE; g->d.parts = PART_NORM)
CHANGE(eight_full, eight(g); g->d.recompute = RECOMPUTE_FULL)
CHANGE(eight_act, eight(g); g->d.recompute = RECOMPUTE_SELECTIVE; g->d.parts = PART_FFN_ACT)
CHANGE(eight_ffn, eight(g); g->d.recompute = RECOMPUTE_SELECTIVE; g->d.parts = PART_FFN)
CHANGE(eight_experts, eight(g); experts(g); g->d.recompute = RECOMPUTE_SELECTIVE; g->d.parts = PART_MOE_ACT)
CHANGE(eight_host, eight(g); g->job->wishes.offload = OFFLOAD_ACTIVATIONS)
CHANGE(eight_optimizer, eight(g); g->job->wishes.offload = OFFLOAD_OPTIMIZER)
CHANGE(eight_post, eight(g); g->job->model.norm.place = NORM_POST)
CHANGE(skew_not_meant, g->job->wishes.post_validation = true; g->job->train.optimizer = OPT_SGD)

static const struct {
    void (*change)(struct given *g);
    const char *why;
} emittable[] = {
    {tokens, "a microbatch of 2147483648 tokens"},
    {tokens_most, NULL},
    {weights, "weights of 1.37e+11 elements on one rank"},
    {weights_most, NULL},
    {instructions, "a program of about 4.2 million instructions (9533 microbatches)"},
    {instructions_most, NULL},
    {full_norm, "tp = 2 with queries normalised over all heads"},
    {full_norm_alone, NULL},
    {sinks, "sinks with heads exchanged over cp = 2"},
    {sinks_ring, NULL},
    {sinks_alone, NULL},
    {chunks_within, NULL},
    {chunks_exchanged, "attention in chunks with heads exchanged over cp = 2"},
    {alibi, "alibi with heads exchanged over cp = 2"},
    {alibi_gathered, NULL},
    {chunk_rest, "chunks of 7 tokens in sequences of 64"},
    {chunk_split, "chunks of 32 tokens across the 4 runs that cp = 2 cuts a sequence into"},
    {chunk_even, NULL},
    {chunk_whole, NULL},
    {expert_bias, NULL},
    {expert_bias_cut, "experts with biases and etp = 2"},
    {expert_bias_shared, "shared experts with biases"},
    {expert_tp, "experts with tp = 2 and no sequence parallelism"},
    {expert_sp, NULL},
    {capacity_cp, "experts with a capacity and sequences split over cp = 2"},
    {capacity_tp, "experts with a capacity and the sequences of a microbatch of 3 split over tp = 2"},
    {capacity, NULL},
    {pairs,
     "overlap of all_to_all without combined_1f1b, dualpipe or dualpipe_v"},
    {overlap_tp, NULL},
    {overlap_tp_other, "overlap of tp with profile \"other\""},
    {overlap_cp, "overlap of cp by all_gather"},
    {overlap_ring, NULL},
    {never_pp, "never overlap of pp"},
    {never_dp, "prefetch = 2 with 'never overlap dp'"},
    {never_dp_alone, NULL},
    {skew_sgd, "post_validation with another optimizer than adamw"},
    {skew_host, "post_validation with the optimizer's state in host memory"},
    {skew_experts, "post_validation with experts"},
    {skew, NULL},
    {skew_one, NULL},
    {skew_not_meant, NULL},
    {eight, NULL},
    {eight_norm, NULL},
    {eight_full, NULL},
    {eight_act, NULL},
    {eight_ffn, "activations=fp8 with recomputation from what is kept so"},
    {eight_experts, NULL},
    {eight_host, "activations=fp8 with activations in host memory"},
    {eight_optimizer, NULL},
    {eight_post, "activations=fp8 with norms behind sublayers alone"},
};

static void check(bool fine, const char *why, const char *want)
{
    if (fine != !want || (want && strcmp(why, want)))
        printf("\n%s, wanted %s", fine ? "accepted" : why, want ? want : "to be accepted");
    CU_ASSERT(fine == !want);
    CU_ASSERT(!want || !strcmp(why, want));
}

static void test_legal(void)
{
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        struct given g = given();
        const char *why = "";
        legal[i].change(&g);
        bool fine = decision_legal(g.a, g.job, g.topo, &g.d, &why);
        check(fine, why, legal[i].why);
        arena_free(g.a);
    }
}

static void test_emittable(void)
{
    for (size_t i = 0; i < sizeof emittable / sizeof *emittable; i++) {
        struct given g = given();
        const char *why = "";
        emittable[i].change(&g);
        bool fine = decision_emittable(g.a, g.job, &g.d, &why);
        check(fine, why, emittable[i].why);
        arena_free(g.a);
    }
}

void suite_refused_decisions(void)
{
    CU_pSuite s = CU_add_suite("refused_decisions", NULL, NULL);
    CU_add_test(s, "what is no decision for this job", test_legal);
    CU_add_test(s, "what can't be emitted", test_emittable);
}
