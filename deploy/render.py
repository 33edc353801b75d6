"""Writes the manifests below deploy/ from what `midflight operator install` applies.

    python deploy/render.py

kustomization.yaml files and patches are written by hand; tests/kubernetes/test_install.py
compares the rest with what would be written now.
"""

from pathlib import Path
from typing import Any

import yaml

from midflight.kubernetes.install import manifests

HERE = Path(__file__).resolve().parent
TEAM = "team-a"  # what the overlay `namespaced` is written for
_HEAD = "# Written by deploy/render.py; change an overlay instead.\n"


def files() -> dict[str, str]:
    """What is to be where, below this folder."""
    image, replicas = manifests.IMAGE, manifests.REPLICAS
    wide = manifests.operator(manifests.NAMESPACE, image, replicas, "")
    narrow = manifests.operator(TEAM, image, replicas, TEAM)
    return {
        "kinds/kinds.yaml": as_text(manifests.kinds()),
        "base/operator.yaml": as_text(wide),
        "overlays/namespaced/operator.yaml": as_text(narrow),
    }


def as_text(objects: list[dict[str, Any]]) -> str:
    shown = yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, width=100)
    return f"{_HEAD}---\n{shown}"


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).write_text(text, encoding="utf-8")
