"""Sizes that vary: what the user says of them, what torch learns of them, and what calls must therefore satisfy."""
