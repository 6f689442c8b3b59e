"""From programs to an archive: passes, a backend per target, packing, and the check of the result."""
