# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Memory: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.968
matmul_sm100             0.874
matmul_fp8_sm100         1.06
attention_sm90           0.906
attention_sm100          0.91
stream_traffic           1.45
recompute_whole          1
host_op_us               58.9
moe_layer_us             204
step_overhead_ms         13.8
straggle                 0.00224
tp_shown                 0.604
tp_overlap_shown         0.329
sp_backward_hidden       0.937
cp_attention             0.9
cp_shown                 0.491
ep_shown                 0.889
ep_overlap_shown         0.4
ep_once_per_node         1
pp_shown                 0.461
boundary_split           1
dp_shown                 0.158
stolen                   0.0753
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
