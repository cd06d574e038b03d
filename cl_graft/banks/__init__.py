"""The use of a saved bank: open, predict, add, forget, verify, inspect and measure it."""
