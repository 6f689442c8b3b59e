"""Repeated blocks of a program: found, taken out as stages, compiled once for all of their weights."""
