"""Functions that torch.export cannot trace, written with functions that it can.

Some look at values, which a trace does not have; some have a size that torch cannot tell, or that a trace would fix.
They are replaced while a model is traced, one topic a file. The results are the same, and so is where they fail. A file
of this folder that is not imported here is not in the table.
"""

from aotpack.export.overrides import (
    asserts,
    batch_norm,
    bools,
    copies,
    distributions,
    encoders,
    flex_attention,
    histograms,
    least_squares,
    losses,
    nested_regions,
    normalization,
    observers,
    pooling,
    products,
    profiling,
    random,
    sizes,
    statistics,
    window_functions,
)
from aotpack.export.overrides.table import functions_overridden

__all__ = [
    "asserts",
    "batch_norm",
    "bools",
    "copies",
    "distributions",
    "encoders",
    "flex_attention",
    "functions_overridden",
    "histograms",
    "least_squares",
    "losses",
    "nested_regions",
    "normalization",
    "observers",
    "pooling",
    "products",
    "profiling",
    "random",
    "sizes",
    "statistics",
    "window_functions",
]
