"""What is done with a saved bank: open, predict, add, forget, verify, inspect."""
