"""HTTP to models: endpoints, retries, credentials, and what is sent with a call.

Read `client.py` first. `parameter_fixes.py` drops a parameter that an endpoint refuses.
"""
