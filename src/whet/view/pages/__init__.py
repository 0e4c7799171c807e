"""One module per page. Each has a tuple ROUTES, which `app.py` puts together."""
