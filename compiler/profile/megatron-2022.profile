# Megatron-LM up to 2022: unfused attention.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py, products and streams held to the layer times
# of Korthikanti et al., Table 4.
# Zero-bubble schedules as published: with post-validation, whether the plan block asks for it or not.
# Memory: dropout's masks, scores kept by unfused attention, the loss in fp32.
matmul_sm80              0.922
attention_unfused        1
stream_traffic           1.19
gradients_added          1
recompute_whole          1
sequence_parallel        0
host_op_us               99.3
step_overhead_ms         12.5
straggle                 0.0065
sp_backward_hidden       0.967
pp_shown                 0.379
post_validation          1
boundary_split           1
dp_shown                 1
dp_overlap_shown         0.547
far_nic_gbs              3.12
zero3_overlaps           1
zero3_speed              0.139
stolen                   0.0821
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
