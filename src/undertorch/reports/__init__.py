"""Draws records for people. It knows records alone: no torch, no GPU, no work."""
