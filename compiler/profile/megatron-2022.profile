# Megatron-LM up to 2022: unfused attention.
# Fitted by tests/bench/fit.py to 144 published runs on many nodes and vTrain's 1,440 on one: matmul_sm80, stream_traffic,
# host_op_us, step_overhead_ms, straggle, tp_backward_hidden, far_nic_gbs; products and streams stay near the layer times of
# Korthikanti et al., Table 4; BLOOM's runs are predicted, not fitted.  `make bench-accuracy` prints how many rows feel each
# parameter; what fewer than ten feel has its default, so that the five runs with ZeRO-3, whose transfers were up to several times
# slower than the network, are predicted too fast: adjust zero3_speed where you know better.
# Set by hand, from what is documented: how attention, gradients and recomputation are computed and stages hand over
# (Megatron-LM's sources; SC'21, section 4.1); gradients reduced after the step; ZeRO-3 with overlap_comm and a thousand million
# live parameters (DeepSpeed's defaults); zero-bubble schedules with post-validation, as published, whether the plan block asks
# for it or not.
# Memory, by hand: dropout's masks, scores kept by unfused attention, the loss in fp32 as in the sources; what allocator,
# context and communicators hold so that 49 runs of BLOOM and 36 of zero-bubble come out.
matmul_sm80              0.926
attention_unfused        1
stream_traffic           1.19
gradients_added          1
recompute_whole          1
sequence_parallel        0
host_op_us               98.8
step_overhead_ms         13
straggle                 0.005
tp_backward_hidden       0.965
post_validation          1
boundary_split           1
dp_shown                 1
far_nic_gbs              2.66
zero3_overlaps           1
allocator                1
allocator_share          0.05
held_gib                 6
context_gib              2
communicator_mib         256
keeps_scores             1
dropout                  1
loss_bytes               6
whole_gradients          1
gradient_copy_bytes      2
zero_most                1
gathered_most            1
