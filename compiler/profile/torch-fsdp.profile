# PyTorch FSDP and its kin: eager or compiled kernels, parameters gathered layer by layer.
# Kernels, host and transfers: fitted to published runs by tests/bench/fit.py (figures in README.md).
# Memory: the sharded parameters are the masters; cross entropy in fp32 (logits, log-softmax and the gradients of both)
# over whole logits, fused and split where memory is short; every second product recomputed.
matmul_sm80              0.89
matmul_sm90              0.883
matmul_fp8_sm90          1.06
attention_sm80           0.513
attention_sm90           0.326
stream_traffic           1.32
quantize_traffic         1.63
loss_passes              9.32
gradients_added          1
host_op_us               30.8
step_overhead_ms         21.3
straggle                 0.00857
tp_overlap_shown         0.681
sp_backward_hidden       0.525
cp_attention             0.85
dp_shown                 0.269
stolen                   0.0905
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
