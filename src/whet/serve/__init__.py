"""Rollouts as a service. `service.py` runs and keeps them; each protocol has its own door to it."""
