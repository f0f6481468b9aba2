# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.965
matmul_sm100             0.873
matmul_fp8_sm90          1.01
matmul_fp8_sm100         1.05
attention_sm90           0.913
attention_sm100          0.871
stream_traffic           1.17
quantize_traffic         1.8
recompute_whole          1
host_op_us               64.3
moe_layer_us             169
moe_wait_us              996
step_overhead_ms         10.6
straggle                 0.00233
tp_shown                 0.664
tp_overlap_shown         0.28
sp_backward_hidden       0.914
cp_attention             0.904
cp_shown                 0.497
ep_shown                 0.486
ep_overlap_shown         0.4
ep_once_per_node         1
pp_shown                 0.41
boundary_split           1
dp_shown                 0.224
stolen                   0.0541
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
zero_most                1
