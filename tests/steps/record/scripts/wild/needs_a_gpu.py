"""Imports what can only be installed where CUDA's compiler is; the argument says which."""

import importlib
import sys

import torch  # noqa: F401

importlib.import_module(sys.argv[1])
