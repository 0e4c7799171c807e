"""Tasks out of sessions, judged by a command or by the tests of a commit. Start with candidates.py."""
