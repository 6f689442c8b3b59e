"""Runs captured programs at other sizes than the example's."""
