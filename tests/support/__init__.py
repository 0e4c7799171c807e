"""What tests share. Fixtures are in `tests/conftest.py`; what one folder alone needs is in that folder's tests.

Everywhere: `waiting` (until a condition holds), `whet_program` (the real program in a user's project).

A small world to run one part of whet in, with every other part real but the model:

- `gateway_world` a model server whose bytes the test decides; `conformance_world` and `sdk_clients` official SDKs
- `scripted_world` the scripted model as a server; `models_world` an engine with a small local model
- `box_helpers` boxes, `judging_world` judges, `rollout_world` one attempt, `run_world` whole runs through the API
- `agents_world` one agent, `contract_world` and `contract_network` every real CLI
- `trace_world` and `export_world` exchanges, traces and exports
- `sharpen_world` and `proposers_world` sharpening with a scripted model, `sharpen_clis` with real CLIs

Statistics with known truth: `call_world`; and `known_world`, `whole_runs` and `many_exams` in `benchmarks/`.

Wire data: `raw_wire` the four dialects as bytes, `calls` as recorded, `agent_requests` and `recordings` of real CLIs,
`neutral_strategies` for hypothesis, `guard_bodies` and `hostile_requests` what must be refused.

Programs: `memory_gateway` is started by a test. `checks/record_traces.py` makes the recordings anew.
"""
