"""One model call, from the agent's request to the recorded exchange.

Read `call.py` first. `count_tokens.py` serves requests that only ask for a token count.
"""
