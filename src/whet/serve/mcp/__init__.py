"""The service as tools for agents, over stdio and streamable HTTP. Read `tools.py` first.

`arguments.py` and `results.py` are the models of what goes in and out; `calls.py` is what the tools do, and
`describing.py` what they say about it; `server.py` is the SDK's server with the tools; `http.py` and `stdio.py` are its
two transports. Until the first call nothing of a run is imported: a program that starts `whet serve --mcp-stdio` does
not wait long for the list of tools.
"""
