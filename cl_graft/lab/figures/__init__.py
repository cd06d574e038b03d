"""Figures of scores: matrices, curves, reliability and rank diagrams, drawn with matplotlib."""
