# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.965
matmul_sm100             0.888
matmul_fp8_sm90          1.01
matmul_fp8_sm100         1.05
attention_sm90           0.911
attention_sm100          0.877
stream_traffic           1.18
quantize_traffic         1.73
recompute_whole          1
host_op_us               63.4
moe_layer_us             170
moe_wait_us              1060
step_overhead_ms         10.3
straggle                 0.00224
tp_shown                 0.686
tp_overlap_shown         0.29
sp_backward_hidden       0.966
cp_attention             0.902
ep_shown                 0.449
ep_overlap_shown         0.4
ep_once_per_node         1
pp_shown                 0.417
boundary_split           1
dp_shown                 0.223
stolen                   0.0633
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
zero_most                1
