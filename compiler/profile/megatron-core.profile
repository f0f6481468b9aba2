# Megatron-Core and NeMo of 2024 and later: fused kernels, flash attention, overlapped transfers.
