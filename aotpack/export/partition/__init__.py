"""Partitioning: a program divided into stages for logical devices, and stages as programs of their own."""
