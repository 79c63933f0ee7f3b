"""From source to what a GPU would load, with no GPU. Importing this imports no compiler."""
