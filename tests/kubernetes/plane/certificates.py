"""The plane's own certificate authority, made with openssl when the plane starts.

One certificate serves the API server and the nodes, and lets the API server prove itself to the
nodes. Users other than the administrator get a certificate each, which names them.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

_NAMES = "IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default,DNS:kubernetes.default.svc"
_DAYS = "30"


class Authority:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"

    def create(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _openssl(
            *("req", "-x509", "-days", _DAYS, "-subj", "/CN=plane"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *_new_key(self._key),
            *("-out", str(self.certificate)),
        )

    def issue(self, file: str, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """A certificate and its key, good for either end of a connection on loopback."""
        certificate, key = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        request, extensions = self.folder / f"{file}.csr", self.folder / f"{file}.ext"
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        extensions.write_text(
            "basicConstraints=critical,CA:FALSE\n"
            "keyUsage=critical,digitalSignature\n"
            "extendedKeyUsage=serverAuth,clientAuth\n"
            "authorityKeyIdentifier=keyid\n"
            f"subjectAltName={_NAMES}\n"
        )
        _openssl("req", "-new", "-subj", subject, *_new_key(key), "-out", str(request))
        _openssl(
            *("x509", "-req", "-in", str(request), "-days", _DAYS, "-extfile", str(extensions)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-out", str(certificate)),
        )
        return certificate, key


def signing_key(path: Path) -> None:
    """For service account tokens, which 1.20 signs with RSA or EC keys in this old format."""
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))


def _new_key(path: Path) -> tuple[str, ...]:
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    return (*curve, "-keyout", str(path))


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {' '.join(arguments)}: {done.stderr.strip()}")
