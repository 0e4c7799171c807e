"""One model call, from the agent's request to the recorded exchange.

Read `call.py` first, then `transfer.py`. `requests.py` plans a call, `exchanges.py` builds its record,
`count_tokens.py` serves requests that only ask for a token count.
"""
