"""Passes that are valid on every device."""
