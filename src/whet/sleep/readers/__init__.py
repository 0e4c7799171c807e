"""Transcripts of coding agents, one reader per program. registry.py lists them."""
