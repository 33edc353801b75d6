"""A proxy before an API server that serves plain HTTP, and loses answers when it is told to."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.kubernetes.plane.control import Plane


class ForgetfulProxy(ThreadingHTTPServer):
    """While `losing` is above 0, a PUT arrives and its answer does not."""

    daemon_threads = True

    def __init__(self, plane: Plane) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.access = plane.api.access
        self.losing = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ForgetfulProxy

    def do_GET(self) -> None:
        self._answer(*self._forward())

    def do_PUT(self) -> None:
        status, content = self._forward()
        if self.server.losing:
            self.server.losing -= 1
            self.close_connection = True
            return
        self._answer(status, content)

    def log_message(self, *_: object) -> None:
        return

    def _forward(self) -> tuple[int, bytes]:
        access = self.server.access
        line = http.client.HTTPSConnection(access.host, access.port, context=access.tls())
        try:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {"Content-Type": "application/json", **access.headers()}
            line.request(self.command, self.path, body or None, headers)
            response = line.getresponse()
            return response.status, response.read()
        finally:
            line.close()

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
