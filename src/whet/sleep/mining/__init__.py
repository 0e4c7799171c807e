"""Tasks and rules, from transcripts and from git history. proof.py decides whether a task is used."""
