"""Private interfaces of torch."""
