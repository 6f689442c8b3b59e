"""Custom operators: those written in Python are traced through, kernels of the user are compiled and called."""
