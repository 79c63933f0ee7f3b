"""Matrix products: which kernels cuBLAS launches for which sizes. cuBLAS is closed, so all of this is modelled."""
