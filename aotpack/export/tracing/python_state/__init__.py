"""What a call leaves in Python objects: detected, and made state of the archive or refused (docs/state.md)."""
