"""Code generation and compiling, one folder per kind of device."""
