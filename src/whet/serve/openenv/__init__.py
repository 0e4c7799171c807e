"""OpenEnv: the tool `run_rollout` over its WebSocket and its JSON-RPC, as every released client speaks them.

`routes.py` lists the addresses, `tools.py` what can be called, `results.py` what comes back."""
