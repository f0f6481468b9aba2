# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
# Fitted by tests/bench/fit.py to 184 published runs, of the newest release that its source has of a model on a GPU: matmul_*,
# attention_*, stream_traffic, quantize_traffic, host_op_us, moe_layer_us, moe_wait_us, step_overhead_ms, straggle, tp_shown,
# sp_backward_hidden, cp_attention, ep_shown, pp_shown, dp_shown, stolen.  `make bench-accuracy` prints how many rows feel each; what
# fewer than ten feel is not fitted but has its default.
# Set by hand: full recomputation and stages as in Megatron-Core's sources; tokens once per node as DeepEP and HybridEP send them;
# each chunk's gradients as they are whole (overlap_grad_reduce).  Of Qwen3-30B-A3B on 16 H100, with experts over both nodes
# (Megatron-Bridge, skills/nemo-mbridge-perf-moe-comm-overlap and -expert-parallel-overlap): pair_wait, since HybridEP's metadata,
# 3.109 s of 64 microbatches' 48 layers, took 0.670 s beside another microbatch; with it and what the target sets of dispatchers,
# 41.25 and 31.31 s with all-to-all and 24.71 and 20.99 s with HybridEP both leave pair_hides, a third of the transfers (the profile
# printed there says 37 %).  Qwen3-235B-A22B on 256 H100, 19.7 and 17.6 s, confirms them (bench-pairs).
# Memory, by hand: the loss in fp32, the head's gradient whole in half precision, and one tensor of each weight's shape, as
# Transformer Engine keeps; reserved above allocated as in 36 runs on B200 where both are known.
matmul_sm90              0.975
matmul_sm100             0.892
matmul_fp8_sm90          0.992
matmul_fp8_sm100         1.05
attention_sm90           0.933
attention_sm100          0.937
stream_traffic           1.5
quantize_traffic         1.07
matmul_mx                0.92
recompute_whole          1
host_op_us               44
moe_layer_us             114
moe_wait_us              1.01e+03
step_overhead_ms         23.5
straggle                 0.0029
tp_shown                 0.782
sp_backward_hidden       0.95
cp_attention             0.901
ep_shown                 0.798
ep_once_per_node         1
pair_hides               0.31
pair_wait                0.2155
pp_shown                 0.595
boundary_split           1
dp_shown                 0.105
dp_by_chunk              1
stolen                   0.0786
allocator                1
allocator_share          0.15
context_gib              1.5
communicator_mib         128
loss_bytes               4
loss_least               2
whole_gradients          1
gradient_shapes          1
zero_most                1
