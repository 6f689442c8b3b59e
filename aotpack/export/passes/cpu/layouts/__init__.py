"""The layouts of activations: orders of dims, what each operator does with them, and the cheapest assignment."""
