"""A proxy before a server that loses answers: the request arrives, the reply does not."""

import socket
import threading
from contextlib import suppress


class LossyProxy:
    """Forwards to `port`; while `losing`, cuts the line instead of passing an answer on."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.losing = False
        self.lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for line in self._lines:
            _cut(line)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._lines += [client, server]
            threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
            threading.Thread(
                target=self._pump, args=(server, client), kwargs={"answers": True}, daemon=True
            ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool = False) -> None:
        with suppress(OSError):  # the other direction may have cut the line
            while data := source.recv(65536):
                if answers and self.losing:
                    self.losing = False
                    self.lost += 1
                    break
                sink.sendall(data)
        _cut(source)
        _cut(sink)


def _cut(line: socket.socket) -> None:
    with suppress(OSError):  # it may be cut already
        line.shutdown(socket.SHUT_RDWR)
    line.close()
