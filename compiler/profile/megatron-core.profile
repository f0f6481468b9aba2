# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.96
matmul_sm100             0.9
matmul_fp8_sm90          0.992
matmul_fp8_sm100         1.03
attention_sm90           0.916
attention_sm100          0.893
stream_traffic           1.14
quantize_traffic         1.52
recompute_whole          1
host_op_us               63.3
moe_layer_us             162
moe_wait_us              1.07e+03
step_overhead_ms         10.9
straggle                 0.00237
tp_shown                 0.696
tp_overlap_shown         0.33
sp_backward_hidden       0.967
cp_attention             0.902
cp_shown                 0.503
ep_shown                 0.564
ep_overlap_shown         0.238
ep_once_per_node         1
pp_shown                 0.566
boundary_split           1
dp_shown                 0.211
dp_by_chunk              1
stolen                   0.068
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
zero_most                1
