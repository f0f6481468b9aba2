# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.969
matmul_sm100             0.874
matmul_fp8_sm100         1.06
attention_sm90           0.907
attention_sm100          0.906
stream_traffic           1.45
recompute_whole          1
host_op_us               59.2
moe_layer_us             204
step_overhead_ms         13.7
straggle                 0.00233
tp_shown                 0.599
tp_overlap_shown         0.329
sp_backward_hidden       0.939
cp_attention             0.9
cp_shown                 0.492
ep_shown                 0.887
ep_overlap_shown         0.4
ep_once_per_node         1
pp_shown                 0.457
boundary_split           1
dp_shown                 0.165
stolen                   0.0774
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
