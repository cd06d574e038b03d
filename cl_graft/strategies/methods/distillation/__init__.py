"""Distillation: outputs or features are held near those of the model before the task."""
