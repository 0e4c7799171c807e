"""Writers of skills: what they are given and give back is in `skills.brief`."""
