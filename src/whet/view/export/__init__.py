"""Pages as files that any web server, or none, can show. Read `site.py` first."""
