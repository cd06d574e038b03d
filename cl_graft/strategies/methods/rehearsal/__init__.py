"""Rehearsal: rows of earlier tasks are kept and trained on again."""
