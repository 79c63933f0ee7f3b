"""Checks: what a launch told by its events, as Findings."""
