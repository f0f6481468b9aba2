# PyTorch FSDP and its kin: eager or compiled kernels, parameters gathered layer by layer.
# Memory: the sharded parameters are the masters; fused cross entropy; every second product recomputed.
matmul_sm80              0.907
matmul_sm90              0.866
matmul_fp8_sm90          0.955
attention_sm80           0.51
attention_sm90           0.328
stream_traffic           1.6
host_op_us               29.4
step_overhead_ms         21.9
straggle                 0.00506
tp_overlap_shown         0.62
sp_backward_hidden       0.335
cp_attention             0.85
dp_shown                 0.185
stolen                   0.0858
allocator                1
allocator_share          0.15
context_gib              1
communicator_mib         64
loss_bytes               9
loss_least               4
eager                    1.2
master_shards            1
selective_products       1
