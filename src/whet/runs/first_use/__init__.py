"""What a new user starts with: `init.py` sets up a repository, `doctor.py` lists what is missing on a machine."""
