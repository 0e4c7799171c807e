"""`whet view`: runs, traces, skills and certificates in a browser.

Read `page.py` first: a page is a function from a request to data and a template. `app.py` lists all of them,
`guard.py` says who may see them, `library.py` finds and reads the runs, `derive/` prepares what takes long.
"""
