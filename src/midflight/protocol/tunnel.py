"""TLS for a wire: what is said cannot be read on the way. Bytes in, bytes out, no socket.

TLS encrypts, and the job's secret authenticates. The certificate that TLS 1.3 asks for is the one
beside this file, whose key everybody has; nobody checks it. Instead the handshake inside the tunnel
proves on both sides that they know the secret, over words that include `binding`: a value that the
two ends of one TLS session compute from all that was said in it, and that nobody in the middle of
two sessions can make equal. So neither a certificate authority nor a file has to be distributed.
"""

import ssl
import threading
from functools import cache
from pathlib import Path

from midflight.errors import ConnectionLost, FrameForged, ProtocolError, UsageError

TLS = "MIDFLIGHT_TLS"  # 1: as --tls, where commands do not have it
_CARRIER = Path(__file__).with_name("carrier.pem")


class Tunnel:
    """One end. A thread may write while another one reads."""

    def __init__(self, *, listens: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = _context(listens=listens)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=listens)
        self._lock = threading.Lock()  # an SSLObject is for one thread at a time

    def shake(self) -> bool:
        """Go on with the handshake of TLS; False: it needs to hear more."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise ProtocolError(f"the connection could not be encrypted: {error.reason}") from None
        return True

    @property
    def binding(self) -> str:
        """The same at both ends of this session, and of no other. After the handshake."""
        found = self._tls.get_channel_binding("tls-unique")
        assert found is not None
        return found.hex()

    def feed(self, data: bytes) -> None:
        """What has come from the other side."""
        with self._lock:
            self._incoming.write(data)

    def unsent(self) -> bytes:
        """What is to go to the other side."""
        with self._lock:
            return self._outgoing.read()

    def seal(self, data: bytes) -> bytes:
        """What is to go to the other side, so that it reads this."""
        with self._lock:
            try:
                self._tls.write(data)
            except ssl.SSLError as error:  # of a session that has been broken
                raise ConnectionLost(f"nothing can be encrypted any more: {error.reason}") from None
            return self._outgoing.read()

    def read(self, most: int) -> bytes:
        """What the other side has said; b"": it takes more to be fed."""
        with self._lock:
            try:
                return self._tls.read(most)
            except ssl.SSLWantReadError:
                return b""
            except ssl.SSLError as error:
                raise FrameForged(
                    f"what came was not encrypted by the other side ({error.reason}): somebody on "
                    "the way changed or inserted it"
                ) from None

    @property
    def has_more(self) -> bool:
        """Whether something was fed that has not been read."""
        with self._lock:
            return bool(self._tls.pending() or self._incoming.pending)


@cache
def _context(*, listens: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if listens:
        context.num_tickets = 0  # a session that is resumed would have another binding
        context.load_cert_chain(_CARRIER)
    return context


def check_tls() -> None:
    """Raises UsageError where this Python cannot encrypt so."""
    if not ssl.HAS_TLSv1_3 or "tls-unique" not in ssl.CHANNEL_BINDING_TYPES:
        raise UsageError(
            f"--tls needs TLS 1.3, which this Python ({ssl.OPENSSL_VERSION}) lacks: use another "
            "one, or do without --tls"
        )
