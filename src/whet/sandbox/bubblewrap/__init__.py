"""The bubblewrap sandbox: separate namespaces, no network, a system call filter.

Read `sandbox.py` first. `launcher.py` runs inside the box and hands the model port to the gateway.
"""
