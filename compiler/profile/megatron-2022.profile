# Megatron-LM up to 2022: unfused attention.
matmul_sm80              0.979
attention                0.3
stream_traffic           1.57
host_op_us               22.7
step_overhead_ms         24
straggle                 0.00774
tp_backward_hidden       0
dp_shown                 1
sequence_parallel 0
recompute_whole 1
