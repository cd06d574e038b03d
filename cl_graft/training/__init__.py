"""How weights learn: dense fine-tuning, a region's parameters, precision and penalties."""
