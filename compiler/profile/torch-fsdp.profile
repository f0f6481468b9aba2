# PyTorch FSDP and its kin: eager or compiled kernels, parameters gathered layer by layer.
# Memory: the sharded parameters are the masters; fused cross entropy; every second product recomputed.
matmul_sm80              0.91
matmul_sm90              0.862
matmul_fp8_sm90          0.848
attention_sm80           0.515
attention_sm90           0.323
stream_traffic           1.66
step_overhead_ms         26.7
straggle                 0.00563
tp_overlap_shown         0.671
cp_attention             0.85
dp_shown                 0.187
stolen                   0.0859
allocator                1
allocator_share          0.15
context_gib              1
communicator_mib         64
loss_bytes               9
loss_least               4
eager                    1.5
master_shards            1
selective_products       1
