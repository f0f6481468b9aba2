# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.913
matmul_sm100             0.874
matmul_fp8_sm90          1.01
matmul_fp8_sm100         1.07
attention_sm90           0.899
attention_sm100          0.918
stream_traffic           1.53
recompute_whole          1
host_op_us               54.5
moe_layer_us             236
step_overhead_ms         17.3
straggle                 0.00484
tp_shown                 0.529
tp_overlap_shown         0.478
sp_backward_hidden       0.923
cp_attention             0.867
cp_shown                 0.484
ep_shown                 0.883
ep_overlap_shown         0.4
ep_once_per_node         1
pp_shown                 0.576
boundary_split           1
dp_shown                 0.0858
stolen                   0.0917
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
whole_gradients          1
gradient_shapes          1
