"""Driving torch.export and AOTAutograd: from a module and example calls to a graph with an interface."""
