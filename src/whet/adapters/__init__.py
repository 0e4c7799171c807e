"""Rollouts of `whet serve` in the trainers that people use: one file per trainer, each over `whet.client`."""
