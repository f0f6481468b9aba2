# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.928
matmul_sm100             0.886
matmul_fp8_sm90          0.959
matmul_fp8_sm100         1.07
attention_sm90           0.861
attention_sm100          0.914
stream_traffic           1.67
recompute_whole          1
host_op_us               35.1
moe_layer_us             204
step_overhead_ms         27.1
straggle                 0.00675
tp_shown                 0.617
tp_overlap_shown         0.464
cp_attention             0.871
cp_shown                 0.485
ep_shown                 0.7
ep_once_per_node         1
ep_overlap_shown         0.4
pp_shown                 0.558
stolen                   0.0874
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
whole_gradients          1
gradient_shapes          1
boundary_split 1
