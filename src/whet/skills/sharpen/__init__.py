"""`whet sharpen`, `whet certify` and `whet transfer`, from the request to the files they write.

Read `run.py` first: the flow of `whet sharpen`, top to bottom.
"""
