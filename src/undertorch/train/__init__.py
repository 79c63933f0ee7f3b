"""A training run, from text to checkpoint, on undertorch.ops. Importing this imports no torch."""
