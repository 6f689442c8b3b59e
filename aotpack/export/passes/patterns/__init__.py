"""What passes recognise in a graph: products, norms and their producers, readers of slices."""
