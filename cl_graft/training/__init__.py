"""Training: dense fine-tuning, rates, the trainable values of a region, precision, probes."""
