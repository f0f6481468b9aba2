# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.953
matmul_sm100             0.878
matmul_fp8_sm90          0.993
matmul_fp8_sm100         1.03
attention_sm90           0.927
attention_sm100          0.898
stream_traffic           1.28
recompute_whole          1
host_op_us               54.3
moe_layer_us             173
step_overhead_ms         17.4
straggle                 0.00247
tp_shown                 0.654
tp_overlap_shown         0.31
sp_backward_hidden       0.929
cp_attention             0.898
cp_shown                 0.495
ep_shown                 0.78
ep_overlap_shown         0.4
ep_once_per_node         1
pp_shown                 0.477
boundary_split           1
dp_shown                 0.154
stolen                   0.0659
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
