"""Tasks out of sessions: judged by a command of the session, or by the tests of its commit. Start with candidates.py."""
