"""Distillation: the model is held near what it answered, or computed, before the task."""
