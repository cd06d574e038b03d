"""The use of a saved bank: open it, predict, add, forget, verify and inspect."""
