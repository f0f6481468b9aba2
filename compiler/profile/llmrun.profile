# llmrun on CPU ranks, and on GPUs with CUDA graphs: no host work between kernels.
