# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.92
matmul_sm100             0.872
matmul_fp8_sm90          1.03
matmul_fp8_sm100         1.08
attention_sm90           0.902
attention_sm100          0.908
stream_traffic           1.62
recompute_whole          1
host_op_us               60.5
moe_layer_us             260
step_overhead_ms         13.4
straggle                 0.0063
tp_shown                 0.52
tp_overlap_shown         0.458
cp_attention             0.868
cp_shown                 0.482
ep_shown                 0.445
ep_overlap_shown         0.4
ep_once_per_node         1
pp_shown                 0.541
boundary_split           1
dp_shown                 0.0917
stolen                   0.0913
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
whole_gradients          1
gradient_shapes          1
