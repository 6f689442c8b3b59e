"""Capture: models and example calls become programs, by way of torch.export. Users call models.py and exported.py."""
