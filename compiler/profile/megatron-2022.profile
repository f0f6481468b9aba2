# Megatron-LM up to 2022: unfused attention.
