"""Patterns that passes recognize in a graph: products, norms and their producers, readers of slices."""
