# PyTorch FSDP and its kin: eager or compiled kernels, parameters gathered layer by layer.
# Fitted by tests/bench/fit.py to 298 published runs: matmul_*, attention_*, stream_traffic, quantize_traffic, loss_passes,
# step_overhead_ms, straggle, dp_shown, stolen.  `make bench-accuracy` prints how many rows feel each parameter; what fewer than ten
# feel is not fitted but has its default.
# The speed of attention is FlashAttention-2's on Ampere and 3's on Hopper.  The fit starts from what these stacks had: Triton's,
# 1.3 to 2.5 times slower than version 2, and version 1 up to PyTorch 2.2, half as fast (Dao 2023, abstract and section 4.1); on
# Hopper version 2, 1.5 to 2 times slower than version 3 (Shah et al. 2024, abstract).
# Memory, by hand so that 44 runs of torchtitan, nanotron and KempnerForge come out: the sharded parameters are the masters;
# cross entropy in fp32 (logits, log-softmax and the gradients of both) over whole logits, fused and split where memory is
# short; every second product recomputed.
matmul_sm80              0.876
matmul_sm90              0.865
matmul_fp8_sm90          0.99
attention_sm80           0.512
attention_sm90           0.327
stream_traffic           1.12
quantize_traffic         2.02
quantize_row             3.1
gathers_half             1
loss_passes              10.3
gradients_added          1
step_overhead_ms         24.3
straggle                 0.0116
dp_shown                 0.287
zero3_eight              1
stolen                   0.0898
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
