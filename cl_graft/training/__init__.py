"""Training: dense fine-tuning, the trainable values of a region, precision and regularizers."""
