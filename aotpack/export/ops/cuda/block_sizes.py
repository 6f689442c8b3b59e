"""Sizes of blocks: Triton's are powers of two, those of its products at least 16."""

from __future__ import annotations

# Of an operand of `tl.dot`, in each dim.
_LEAST = 16


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()


def product_block(count: int, most: int | None = None) -> int:
    """The size of a block of a product over `count` elements: all of them, or `most` at a time."""
    size = power_of_two(count)
    return max(_LEAST, size if most is None else min(most, size))
