"""`whet gateway`: a gateway that records without a run.

`serve.py` runs it, `registry.py` lists the gateways that this user has running.
"""
