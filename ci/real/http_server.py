"""http_server.py ARGS: `python3 -m http.server ARGS` with a longer accept queue.

The module's queue holds five connections; a crowd of clients would measure TCP's retries (1 s, 3 s)
instead of the server. Nothing else is changed.
"""

import runpy
import socketserver

socketserver.TCPServer.request_queue_size = 1024
runpy.run_module("http.server", run_name="__main__", alter_sys=True)
