# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.97
matmul_sm100             0.892
matmul_fp8_sm90          0.991
matmul_fp8_sm100         1.02
attention_sm90           0.929
attention_sm100          0.896
stream_traffic           1.17
quantize_traffic         1.5
recompute_whole          1
host_op_us               59.8
moe_layer_us             148
moe_wait_us              1.16e+03
step_overhead_ms         13.7
straggle                 0.00251
tp_shown                 0.697
tp_overlap_shown         0.347
sp_backward_hidden       0.964
cp_attention             0.902
cp_shown                 0.497
ep_shown                 0.598
ep_overlap_shown         0.222
ep_once_per_node         1
pp_shown                 0.544
boundary_split           1
dp_shown                 0.185
dp_by_chunk              1
stolen                   0.0698
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
zero_most                1
