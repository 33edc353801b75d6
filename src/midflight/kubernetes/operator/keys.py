"""The operator's own key, from which the secrets of all jobs follow: a Secret beside its lease."""

import base64
import secrets

from midflight.errors import Exists, NotFound
from midflight.kubernetes.api.async_connection import AsyncConnection

NAME = "midflight-operator-key"
_FIELD = "key"


async def own_key(api: AsyncConnection, namespace: str) -> bytes:
    """Made by the first operator that needs it, and kept for all that follow."""
    try:
        return _of(await api.get("Secret", namespace, NAME))
    except NotFound:
        pass
    made = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "namespace": namespace},
        "data": {_FIELD: base64.b64encode(secrets.token_bytes(32)).decode()},
    }
    try:
        return _of(await api.create(made))
    except Exists:  # another operator was faster
        return _of(await api.get("Secret", namespace, NAME))


def _of(secret: dict[str, object]) -> bytes:
    data = secret["data"]
    assert isinstance(data, dict)
    return base64.b64decode(data[_FIELD])
