"""Isolation: tasks have parameters of their own that no later task changes."""
