# Megatron-LM up to 2022: unfused attention.
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
