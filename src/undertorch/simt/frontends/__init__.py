"""Ways into the machine."""
