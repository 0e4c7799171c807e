"""HTTP to models: endpoints, retries, credentials, and what is sent with a call.

Read `client.py` first, then `reply.py` for what comes back. `pool.py` chooses endpoints, `address.py` holds where one
is, `headers.py` and `azure.py` add credentials, `parameter_fixes.py` drops a parameter that an endpoint refuses.
"""
