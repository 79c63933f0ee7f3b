"""The race detector, in the language of simt/codegen/dialect.py: never run by Python."""
