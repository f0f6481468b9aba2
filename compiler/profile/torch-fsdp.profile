# PyTorch FSDP and its kin: eager or compiled kernels, parameters gathered layer by layer.
