"""Training rows: token ids, log-probabilities and masks of each conversation.

Read `rows.py` first. `calls.py` reads the tokens of one call, `merge.py` joins the calls of a
conversation, `breaks.py` says where a conversation cannot be joined and why.
"""
