"""Who one is on a cluster, and whether one may do anything there.

A newer cluster says it. Of an older one it is told from the credentials themselves: the subject of
a token, the common name of a certificate, else the name that the kubeconfig gives the user.
"""

import base64
import binascii
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from midflight.errors import Refused
from midflight.kubeconfig import Settings, token
from midflight.kubernetes.api.connection import Connection
from midflight.kubernetes.api.paths import path

_REVIEWS = ("v1", "v1beta1", "v1alpha1")  # of authentication.k8s.io; the first came with 1.28


@dataclass(frozen=True)
class User:
    name: str
    admin: bool


def whoami(connection: Connection) -> User:
    return User(name(connection), _is_admin(connection))


def name(connection: Connection) -> str:
    for version in _REVIEWS:
        api = f"authentication.k8s.io/{version}"
        body = {"apiVersion": api, "kind": "SelfSubjectReview"}
        try:
            where = path("SelfSubjectReview", "", api=api)
            answer = connection.ask("POST", where, body=body, what="ask who you are")
        except Refused:
            continue
        return str(answer["status"]["userInfo"].get("username") or "")
    return by_credentials(connection.settings)


def by_credentials(settings: Settings) -> str:
    """Without asking anybody."""
    return _subject(_token(settings.user)) or _common_name(settings.user) or settings.user_name


def _is_admin(connection: Connection) -> bool:
    """Whether everything is allowed everywhere."""
    everything = {"verb": "*", "group": "*", "resource": "*"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": everything},
    }
    where = path("SelfSubjectAccessReview", "")
    answer = connection.ask("POST", where, body=body, what="ask what you may do")
    return bool((answer.get("status") or {}).get("allowed"))


def _token(user: Mapping[str, Any]) -> str:
    try:
        return token(user)
    except (OSError, ValueError):
        return ""


def _subject(token: str) -> str:
    """Of a JSON Web Token; "" for any other."""
    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        return str(json.loads(base64.urlsafe_b64decode(padded)).get("sub") or "")
    except (ValueError, binascii.Error, AttributeError):
        return ""


def _common_name(user: Mapping[str, Any]) -> str:
    """Of the client certificate, as the standard library decodes it."""
    import _ssl

    decode = getattr(_ssl, "_test_decode_cert", None)
    if decode is None:
        return ""
    try:
        if data := user.get("client-certificate-data"):
            with tempfile.NamedTemporaryFile() as file:
                file.write(base64.b64decode(data))
                file.flush()
                found = decode(file.name)
        elif file_name := user.get("client-certificate"):
            found = decode(file_name)
        else:
            return ""
    except (OSError, ValueError):
        return ""
    pairs = [pair for group in found.get("subject") or () for pair in group]
    return str(dict(pairs).get("commonName", ""))
