"""Capture: models and example calls become programs, through torch.export. Users call models.py and exported.py."""
