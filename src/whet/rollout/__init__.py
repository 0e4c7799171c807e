"""One attempt of one rollout: from an empty box to a score.

Read `attempt.py` first; it is the whole flow. `result.py` has the data, `judging.py` the judges' phase.
`failures.py` decides whether a failure counts against the agent, `endpoint.py` asks whether a model's endpoint
works, `model_client.py` lets judges and proposers call models, `resources.py` is what all rollouts of a run share.
"""
