"""What a build needs of the machine: its cache, temporary folders, the compiler and its processes. Nothing here imports
torch, so that `aotpack cache` and `aotpack doctor` do without.
"""
