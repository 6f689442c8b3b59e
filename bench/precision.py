"""Precisions of models. Inputs and outputs are fp32 in all, so that every engine gets the same call.

Measured processes import this module, which imports nothing.
"""

# Suffixes of names of models, with the greatest error relative to the output's greatest magnitude. A model without one
# is fp32. `w8` and `w4`: linears have weights of so many bits, and engines may round activations to 8 bits.
TOLERANCES = {"bf16": 3e-2, "int8": 1e-1, "w8": 3e-2, "w4": 3e-2}


def precision_of(name: str) -> str:
    """That of the model `name`."""
    suffix = name.rpartition("-")[2]
    return suffix if suffix in TOLERANCES else "fp32"
