"""The weights of an archive: shared, derived and replaceable ones."""
