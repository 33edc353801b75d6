"""The control plane: etcd, API server, controller-manager and scheduler on loopback.

Everything lives in one private folder and is gone when the plane stops, or when the process that
started it dies. RBAC is on. Timings are cut so that a lost node is noticed within seconds.

Controllers and scheduler go and come back with the API server, as on a machine that is started
anew. Left running they try again after ever longer waits, half a minute in the end; with such
timings they would take all nodes for lost, and after that release 1.20.2 may never evict the pods
of a node that really is (it finds an old entry in its queue; Kubernetes pull request 96876).

Addresses of pods are on loopback here, which Endpoints may not name: the controllers for those are
off, and the nodes themselves find out which pods a Service means.
"""

import fcntl
import http.client
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kubernetes.plane import kubeconfig
from tests.kubernetes.plane.api import Api
from tests.kubernetes.plane.binaries import Binaries
from tests.kubernetes.plane.certificates import Authority, signing_key
from tests.kubernetes.plane.daemons import Daemon
from tests.kubernetes.plane.kubeconfig import Server
from tests.store.etcd_process import free_port

HOST = "127.0.0.1"
NODE_GRACE = 4  # seconds without a heartbeat after which a node counts as lost
EVICTION = 1  # seconds that pods stay on a lost node
_CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GATES = "BoundServiceAccountTokenVolume=true"  # tokens are projected, as on current clusters
_PREFIX = "midflight-plane-"
_YOUNG = 60  # seconds
_OFF = ("endpoint", "endpointslice", "endpointslicemirroring", "attachdetach", "nodeipam", "route")


class Plane:
    """One cluster, without nodes. `start` returns when it answers; `stop` leaves nothing."""

    def __init__(self, binaries: Binaries, folder: Path) -> None:
        self.folder = folder
        self.binaries = binaries
        self.authority = Authority(folder / "pki")
        self.server = Server(HOST, free_port(), self.authority.certificate)
        self.kubeconfig = folder / "admin.kubeconfig"
        self.api: Api
        self.certificate: tuple[Path, Path]  # with its key: the API server's, and the nodes'
        self._etcd_port, self._peer_port = free_port(), free_port()
        self._daemons: dict[str, Daemon] = {}
        self._held = _hold(folder)

    @classmethod
    def start(cls, binaries: Binaries, crds: Sequence[dict[str, Any]] = ()) -> "Plane":
        _remove_orphans()
        plane = cls(binaries, Path(tempfile.mkdtemp(prefix=_PREFIX)))
        try:
            plane._start_etcd()
            plane._prepare()
            plane._start_api_server()
            plane._create(crds)
            plane._start_controllers()
        except BaseException:
            plane.stop()
            raise
        return plane

    def stop(self) -> None:
        for daemon in self._daemons.values():
            daemon.kill()  # what they keep is deleted next, so none needs to end tidily
        self._daemons.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    # --- the API server goes away and comes back --------------------------------------------------

    def stop_api_server(self) -> None:
        for name in (*_CONTROLLERS, "kube-apiserver"):
            self._daemons.pop(name).kill()

    def start_api_server(self) -> None:
        self._start_api_server()
        self._start_controllers()

    def restart_api_server(self) -> None:
        self.stop_api_server()
        self.start_api_server()

    def _start_api_server(self) -> None:
        certificate, key = map(str, self.certificate)
        signing = str(self.folder / "pki" / "accounts.key")
        flags = {
            "etcd-servers": f"http://{HOST}:{self._etcd_port}",
            "bind-address": HOST,
            "advertise-address": HOST,
            "secure-port": str(self.server.port),
            "tls-cert-file": certificate,
            "tls-private-key-file": key,
            "client-ca-file": str(self.authority.certificate),
            "kubelet-client-certificate": certificate,
            "kubelet-client-key": key,
            "kubelet-preferred-address-types": "InternalIP",
            "token-auth-file": str(self.folder / "tokens.csv"),
            "authorization-mode": "RBAC",
            "allow-privileged": "true",
            "service-cluster-ip-range": "10.96.0.0/24",
            "endpoint-reconciler-type": "none",  # it may not name loopback addresses either
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": signing,
            "service-account-key-file": signing,
            "default-not-ready-toleration-seconds": str(EVICTION),
            "default-unreachable-toleration-seconds": str(EVICTION),
            "enable-priority-and-fairness": "false",
            "feature-gates": _GATES,
        }
        self._run("kube-apiserver", flags).await_ready(self.api.ready)

    # --- other callers than the administrator -----------------------------------------------------

    def kubeconfig_for_user(
        self, name: str, groups: Sequence[str] = (), namespace: str = "default"
    ) -> Path:
        """A user who may do nothing yet, besides what RBAC lets the groups do."""
        certificate, key = self.authority.issue(f"user-{name}", name, groups)
        user = {"client-certificate": str(certificate), "client-key": str(key)}
        return kubeconfig.write(
            self.folder / f"user-{name}.kubeconfig", self.server, user, namespace
        )

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """The ServiceAccount has to exist; its token is good for an hour."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        user = {"token": self.api.call("POST", path, request)["status"]["token"]}
        file = self.folder / f"account-{namespace}-{name}.kubeconfig"
        return kubeconfig.write(file, self.server, user, namespace)

    # --- starting ---------------------------------------------------------------------------------

    def _start_etcd(self) -> None:
        client, peer = (f"http://{HOST}:{port}" for port in (self._etcd_port, self._peer_port))
        flags = {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
        }
        command = [str(self.binaries.etcd), *(f"--{flag}={value}" for flag, value in flags.items())]
        self._daemons["etcd"] = Daemon("etcd", command, self.folder / "etcd.log")

    def _prepare(self) -> None:
        """Keys, certificates and the administrator's token, while etcd starts."""
        self.authority.create()
        self.certificate = self.authority.issue("plane", "plane")
        signing_key(self.folder / "pki" / "accounts.key")
        token = secrets.token_hex(16)
        (self.folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        kubeconfig.write(self.kubeconfig, self.server, {"token": token})
        self.api = Api(self.kubeconfig)
        self._daemons["etcd"].await_ready(self._etcd_answers)

    def _etcd_answers(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self._etcd_port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _create(self, crds: Sequence[dict[str, Any]]) -> None:
        """Before the controllers start: the garbage collector learns new kinds every 30 s only."""
        for crd in crds:
            self.api.call("POST", _CRDS, crd)
        waiting = {crd["metadata"]["name"] for crd in crds}
        if not waiting:
            return
        for _, crd in self.api.watch(_CRDS, seconds=30):
            conditions = crd.get("status", {}).get("conditions") or []
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                waiting.discard(crd["metadata"]["name"])
            if not waiting:
                return
        raise RuntimeError(f"not established within 30 s: {sorted(waiting)}")

    def _start_controllers(self) -> None:
        common = {
            "kubeconfig": str(self.kubeconfig),
            "leader-elect": "false",
            "bind-address": HOST,
            "port": "0",
            "secure-port": "0",
            "kube-api-qps": "500",
            "kube-api-burst": "1000",
            "feature-gates": _GATES,
        }
        manager = {
            "controllers": ",".join(["*", *(f"-{name}" for name in _OFF)]),
            "service-account-private-key-file": str(self.folder / "pki" / "accounts.key"),
            "root-ca-file": str(self.authority.certificate),
            "node-monitor-period": "1s",
            "node-monitor-grace-period": f"{NODE_GRACE}s",
            "node-startup-grace-period": f"{NODE_GRACE}s",
            "pod-eviction-timeout": f"{EVICTION}s",
            "node-eviction-rate": "100",
            "secondary-node-eviction-rate": "100",
            "large-cluster-size-threshold": "0",
            "pvclaimbinder-sync-period": "1s",
        }
        for name, own in zip(_CONTROLLERS, (manager, {}), strict=True):
            self._run(name, common | own)

    def _run(self, name: str, flags: dict[str, str]) -> Daemon:
        command = [str(self.binaries.folder / name), *(f"--{f}={v}" for f, v in flags.items())]
        self._daemons[name] = Daemon(name, command, self.folder / f"{name}.log")
        return self._daemons[name]


def _hold(folder: Path) -> int | None:
    """Locks a folder for as long as this process lives; None if another one holds it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_orphans() -> None:
    """Folders of planes whose process was killed; a young one may be somebody's who begins."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if time.time() - folder.stat().st_ctime < _YOUNG:
            continue
        held = _hold(folder)
        if held is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)
