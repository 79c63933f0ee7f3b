"""PyTorch's launch geometry: the blocks that its CUDA sources launch for which tensors. It knows GPUs, but no Ops."""
