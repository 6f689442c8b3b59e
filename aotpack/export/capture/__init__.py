"""Capture: models and example calls become programs, by way of torch.export. What users call is in models.py."""
