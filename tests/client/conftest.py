"""What the tests of clients share."""

from support.scripted_rest import call

__all__ = ["call"]
