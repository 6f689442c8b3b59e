"""Passes that are true on every device."""
