"""Dynamic sizes: what users declare, what torch assumes, and what calls must therefore satisfy."""
