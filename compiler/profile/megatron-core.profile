# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
matmul_sm90              0.992
matmul_sm100             0.761
matmul_fp8_sm90          0.988
matmul_fp8_sm100         0.996
attention                0.733
stream_traffic           1.82
host_op_us               10.1
moe_layer_us             411
step_overhead_ms         31.5
straggle                 0.00637
tp_shown                 0.626
tp_overlap_shown         0.428
cp_attention             0.85
cp_shown                 0.536
ep_shown                 0.657
recompute_whole 1
