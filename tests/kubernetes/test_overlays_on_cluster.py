"""The overlays in deploy/, as a real API server of its version takes them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from midflight.kubernetes.install import apply, manifests
from tests.kubernetes.plane.api import Json
from tests.kubernetes.plane.control import Plane

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PROMETHEUS = "monitoring.coreos.com/"  # whose kinds are not there
SPACES = "/api/v1/namespaces"
APPLY = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-")


@pytest.fixture
def spaces(plane: Plane) -> None:
    """Those that the overlays are written for; they stay for the other tests."""
    for name in (manifests.NAMESPACE, "team-a"):
        if plane.api.get(f"{SPACES}/{name}") is None:
            plane.api.call("POST", SPACES, {"metadata": {"name": name}})


@pytest.mark.usefixtures("spaces")
@pytest.mark.parametrize(
    "overlay", ["default", "monitoring", "namespaced", "restricted-network", "single"]
)
def test_every_overlay_is_accepted_whole(plane: Plane, overlay: str, tmp_path: Path) -> None:
    """Before 1.25 with the component for that; only the default had a form for those clusters."""
    kubectl = shutil.which("kubectl") or pytest.skip("kubectl is not here")
    folder = Path(shutil.copytree(DEPLOY, tmp_path / "deploy"))
    content: Json = {"resources": [f"overlays/{overlay}"]}
    if apply.number(plane.api.call("GET", "/version")["gitVersion"]) < (1, 25):
        content["components"] = ["components/before-1.25"]
    (folder / "kustomization.yaml").write_text(json.dumps(content), encoding="utf-8")
    made = subprocess.check_output([kubectl, "kustomize", str(folder)], text=True, timeout=60)
    ours = [one for one in yaml.safe_load_all(made) if not one["apiVersion"].startswith(PROMETHEUS)]
    done = subprocess.run(
        [kubectl, f"--kubeconfig={plane.kubeconfig}", *APPLY],
        input=yaml.safe_dump_all(ours),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
