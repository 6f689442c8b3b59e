"""Python state that a call changes: detected, and made state of the archive or rejected (docs/state.md)."""
