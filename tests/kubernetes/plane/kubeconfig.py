"""Kubeconfig files: who talks to the plane, and where it is."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Server:
    """Where the API server is, and what proves that it is the right one."""

    host: str
    port: int
    authority: Path

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"


def write(path: Path, server: Server, user: dict[str, Any], namespace: str = "default") -> Path:
    """`user` is what a kubeconfig says of one: a token, or a client certificate and its key."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "plane",
                "cluster": {"server": server.url, "certificate-authority": str(server.authority)},
            }
        ],
        "users": [{"name": path.stem, "user": user}],
        "contexts": [
            {
                "name": "plane",
                "context": {"cluster": "plane", "user": path.stem, "namespace": namespace},
            }
        ],
        "current-context": "plane",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=1) + "\n")  # JSON is YAML
    return path
