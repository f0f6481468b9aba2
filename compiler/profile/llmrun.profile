# llmrun on CPU ranks, and on GPUs with CUDA graphs: no host work between kernels, transfers where the plan puts them.
# Hopper's kernels are those of an H100 SXM in training steps of three models (tests/gpu/RESULTS.md), the others' and stragglers
# near those of Megatron-Core, which calls the same libraries, from an earlier fit.
joins                    1
matmul_sm80              0.926
matmul_sm90              1.01
matmul_sm100             0.878
matmul_fp8_sm90          0.993
attention_sm90           0.78
attention_sm100          0.898
straggle                 0.00247
pp_shown                 0
cp_shown                 1
