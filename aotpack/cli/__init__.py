"""The command line: one file per command. Each command imports its dependencies when it runs."""
