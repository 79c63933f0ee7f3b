#!/bin/sh
# Makes the .ptx files here from the .cu files (CUDA 13.0). Paths are cut, so that the files are the same anywhere.
# Of cooperative groups most lines are the headers', inlined: no lines are kept of them.
for name in classics features objects cooperative; do
    lines=-lineinfo
    [ $name = cooperative ] && lines=
    nvcc -ptx -arch=sm_80 $lines -std=c++17 $name.cu -o $name.ptx || exit 1
    sed -i -E 's#(\.file[[:space:]]+[0-9]+ ")[^"]*/#\1#' $name.ptx
done
