# PyTorch FSDP and its kin: eager or compiled kernels, parameters gathered layer by layer.
matmul_sm80              0.969
matmul_sm90              0.827
matmul_fp8_sm90          0.58
attention                0.621
stream_traffic           1.37
host_op_us               19.8
step_overhead_ms         18
straggle                 0.00544
tp_overlap_shown         0.708
cp_attention             0.85
dp_shown                 0.0877
stolen                   0.0771
