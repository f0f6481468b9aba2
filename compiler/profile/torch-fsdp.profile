# PyTorch FSDP and its kin: eager or compiled kernels, parameters gathered layer by layer.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: the sharded parameters are the masters; cross entropy in fp32 (logits, log-softmax and the gradients of both)
# over whole logits, fused and split where memory is short; every second product recomputed.
matmul_sm80              0.886
matmul_sm90              0.891
matmul_fp8_sm90          1.08
attention_sm80           0.515
attention_sm90           0.326
stream_traffic           1.31
quantize_traffic         1.64
loss_passes              9.2
host_op_us               31.1
step_overhead_ms         22.7
straggle                 0.00921
tp_overlap_shown         0.68
sp_backward_hidden       0.567
cp_attention             0.85
dp_shown                 0.301
stolen                   0.0913
allocator                1
allocator_share          0.1
context_gib              1
communicator_mib         64
loss_bytes               12
loss_parallel            6
loss_least               4
eager                    2
loss_whole               1
master_shards            1
selective_products       1
