"""The runtime that kernels call, in the language of codegen/dialect.py: never run by Python."""
