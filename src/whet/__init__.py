"""whet runs real coding agents on tasks, records every model call, scores the work and sharpens their skills."""

__version__ = "0.1.0"
