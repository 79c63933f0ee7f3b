"""What the file of settings holds."""

from dataclasses import dataclass


@dataclass
class Settings:
    width: int
    depth: int
