"""`kungfu-run -debug-port`: which clusters the job has had, as JSON, on loopback."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from midflight.errors import UsageError


class DebugServer:
    def __init__(self, port: int, stages: Callable[[], list[dict[str, Any]]]) -> None:
        """Port 0: none is wanted."""
        self._server: ThreadingHTTPServer | None = None
        if not port:
            return
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(stages))
        except OSError as error:
            raise UsageError(f"-debug-port {port}: cannot listen: {error.strerror}") from None

    def __enter__(self) -> None:
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _handler(stages: Callable[[], list[dict[str, Any]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            body = json.dumps(stages()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing."""

    return Handler
