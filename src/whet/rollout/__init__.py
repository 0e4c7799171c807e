"""One attempt of one rollout: from an empty box to a score.

Read `attempt.py` first; it is the whole flow. `failures.py` and `blame.py` decide whether a failure
counts against the agent, `endpoint.py` asks whether a model's endpoint works, `model_client.py` lets
judges and proposers call models through the gateway.
"""
