"""Who makes each call: the main thread, a sub-agent, or a helper call such as a title.

Read `threads.py` first. `headers.py` reads what agents say about themselves, `conversations.py` matches
a request with the conversation that it continues.
"""
