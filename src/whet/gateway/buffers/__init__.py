"""Bounded memory: bodies and replies that are held, spooled to disk, decompressed or waiting."""
