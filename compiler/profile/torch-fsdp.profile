# PyTorch FSDP and its kin: eager or compiled kernels, parameters gathered layer by layer.
# Memory: the sharded parameters are the masters; fused cross entropy; every second product recomputed.
matmul_sm80              0.907
matmul_sm90              0.867
matmul_fp8_sm90          0.956
attention_sm80           0.51
attention_sm90           0.332
stream_traffic           1.6
host_op_us               29.4
step_overhead_ms         22
straggle                 0.00501
tp_overlap_shown         0.619
sp_backward_hidden       0.336
cp_attention             0.85
dp_shown                 0.186
stolen                   0.0857
allocator                1
allocator_share          0.15
context_gib              1
communicator_mib         64
loss_bytes               9
loss_least               4
eager                    1.5
master_shards            1
selective_products       1
