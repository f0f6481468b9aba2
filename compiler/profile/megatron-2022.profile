# Megatron-LM up to 2022: unfused attention.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: dropout's masks, scores kept by unfused attention, the loss in fp32.
matmul_sm80              0.927
attention_unfused        1
stream_traffic           1.31
recompute_whole          1
sequence_parallel        0
host_op_us               102
step_overhead_ms         7.73
straggle                 0.00782
tp_backward_hidden       0.151
sp_backward_hidden       0.982
pp_shown                 0.263
boundary_split           1
dp_shown                 0.44
zero3_speed              0.169
stolen                   0.0787
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
