# Megatron-LM up to 2022: unfused attention.
# Memory: dropout's masks, scores kept by unfused attention, the loss in fp32.
matmul_sm80              0.941
attention_unfused        1
stream_traffic           1.21
recompute_whole          1
sequence_parallel        0
host_op_us               106
step_overhead_ms         24.5
straggle                 0.0082
tp_backward_hidden       0.606
pp_shown                 0.61
dp_shown                 0.912
stolen                   0.0816
allocator                1
allocator_share          0.1
context_gib              2
communicator_mib         256
loss_bytes               10
whole_gradients          1
keeps_scores             1
dropout                  1
