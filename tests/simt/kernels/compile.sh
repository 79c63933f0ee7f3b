#!/bin/sh
# Makes the .ptx files here from the .cu files (CUDA 13.0). Paths are cut, so that the files are the same anywhere.
for name in classics features; do
    nvcc -ptx -arch=sm_80 -lineinfo -std=c++17 $name.cu -o $name.ptx || exit 1
    sed -i -E 's#(\.file[[:space:]]+[0-9]+ ")[^"]*/#\1#' $name.ptx
done
