"""The command that the conformance suite starts for a scenario: it asks the test to play the client.

A process that imports the engine for each scenario would take most of the suite's time.
"""

import os
import socket
import sys

port, url = sys.argv[1:]
names = ("MCP_CONFORMANCE_SCENARIO", "MCP_CONFORMANCE_CONTEXT")
with socket.create_connection(("127.0.0.1", int(port))) as connection, connection.makefile("rw") as lines:
    lines.writelines(f"{text}\n" for text in (url, *(os.environ.get(name, "") for name in names)))
    lines.flush()
    sys.exit(lines.read() or None)
