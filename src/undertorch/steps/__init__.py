"""From a script to a Step: recorded, predicted, measured, read from traces."""
