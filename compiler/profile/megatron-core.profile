# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.97
matmul_sm100             0.892
matmul_fp8_sm90          0.996
matmul_fp8_sm100         1.02
attention_sm90           0.932
attention_sm100          0.893
stream_traffic           1.16
quantize_traffic         1.5
recompute_whole          1
host_op_us               59.7
moe_layer_us             149
moe_wait_us              1.16e+03
step_overhead_ms         13.8
straggle                 0.0027
tp_shown                 0.697
tp_overlap_shown         0.353
sp_backward_hidden       0.963
cp_attention             0.903
cp_shown                 0.499
ep_shown                 0.596
ep_overlap_shown         0.221
ep_once_per_node         1
pp_shown                 0.568
boundary_split           1
dp_shown                 0.184
dp_by_chunk              1
stolen                   0.07
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
zero_most                1
