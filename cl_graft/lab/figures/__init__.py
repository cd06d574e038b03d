"""Figures of scores: matrices and curves, drawn with matplotlib."""
