"""Messages: lines of the model, internal errors, and the words of `torch._check`."""
