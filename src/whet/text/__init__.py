"""Text that whet did not write: make it storable (plain), keep secrets out of it (redact), put it into prompts
(untrusted)."""
