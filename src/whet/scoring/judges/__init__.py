"""One file per judge: `choice(spec, work)` in `choice.py` scores work by the spec of `whet.tasks.judges`.

`exact.py` is the smallest one to read first. `rank.py` differs: it scores all samples of a task together.
"""
