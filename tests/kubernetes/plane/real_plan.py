"""Where everything of a node with real containers is, and what its programs are told. Pure.

The node is on a network of its own: one bridge, to which its pods and one line from this machine
are tied. Nothing is forwarded and no packet filter is needed: whoever is on the bridge hears the
others, and nobody beyond it can be reached. The node has the bridge's first address, and the
address of the Service `kubernetes` as well; what is sent there is handed to the API server by the
gateway (see `real_gateway`), which answers for the cluster's names too.
"""

import dataclasses
import json
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from tests.kubernetes.plane.real_image import NAME as IMAGE

BRIDGE, LINE = "pods", "line"  # devices in the node's network
KUBELET_PORT = 10250
DOMAIN = "cluster.local"
CGROUP = "midflight"  # in whose control group those of the node's containers are
TAINT = "midflight.dev/real-node"  # only who asks for real containers comes here
_LEASE = 4  # seconds; as long as the plane waits
# The kubelet sets these for the whole machine unless it finds them so: it is shown what it wants.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True)
class Plan:
    name: str  # of the Node, of its line and of its control group on this machine
    folder: str
    parts: str  # programs and plugins
    kubelet: str
    network: str  # of pods
    service: str  # the address of the Service `kubernetes`
    api_port: int  # on loopback
    kubeconfig: str
    authority: str
    certificate: str
    key: str

    @property
    def node_ip(self) -> str:
        return str(next(IPv4Network(self.network).hosts()))

    @property
    def machine_ip(self) -> str:
        """This machine's end of the line."""
        return str(list(IPv4Network(self.network).hosts())[-1])

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    @property
    def scratch(self) -> str:
        """In memory, and seen by the node only."""
        return self.path("scratch")

    @property
    def socket(self) -> str:
        return f"{self.scratch}/containerd.sock"

    def write(self) -> Path:
        """All files that the node reads; the plan itself is returned."""
        files = {
            "plan.json": json.dumps(dataclasses.asdict(self)),
            "containerd.toml": _containerd(self),
            "kubelet.json": json.dumps(_kubelet(self)),
            "cni/pods.conflist": json.dumps(_cni(self)),
            "resolv.conf": "",
        }
        for name, text in files.items():
            place = Path(self.path(name))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        return Path(self.path("plan.json"))

    @staticmethod
    def read(path: Path) -> "Plan":
        return Plan(**json.loads(path.read_text()))

    def containerd_command(self) -> list[str]:
        return [f"{self.parts}/containerd", "--config", self.path("containerd.toml")]

    def import_command(self, archive: str) -> list[str]:
        return [
            *(f"{self.parts}/ctr", "--address", self.socket, "--namespace", "k8s.io"),
            *("images", "import", archive),
        ]

    def kubelet_command(self) -> list[str]:
        flags = {
            "config": self.path("kubelet.json"),
            "kubeconfig": self.kubeconfig,
            "hostname-override": self.name,
            "node-ip": self.node_ip,
            "container-runtime": "remote",
            "container-runtime-endpoint": f"unix://{self.socket}",
            "pod-infra-container-image": IMAGE,
            "root-dir": f"{self.scratch}/kubelet",
            "register-with-taints": f"{TAINT}=true:NoSchedule",
        }
        return [self.kubelet, *(f"--{flag}={value}" for flag, value in flags.items())]


def _containerd(plan: Plan) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{plan.scratch}/containerd"
state = "{plan.scratch}/containerd-state"
[grpc]
  address = "{plan.socket}"
[{cri}]
  sandbox_image = "{IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true  # root may lack the right to raise its own priority
  [{cri}.cni]
    bin_dir = "{plan.parts}"
    conf_dir = "{plan.path("cni")}"
  [{cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{cri}.containerd.runtimes.runc.options]
      BinaryName = "{plan.parts}/runc"
"""


def _cni(plan: Plan) -> dict[str, Any]:
    """The bridge has its address already: as its gateway, the plugin would turn forwarding on."""
    network = IPv4Network(plan.network)
    addresses = {
        "subnet": plan.network,
        "gateway": plan.node_ip,
        "rangeStart": str(network[2]),
        "rangeEnd": str(network[-3]),
    }
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[addresses]],
            "routes": [{"dst": "0.0.0.0/0", "gw": plan.node_ip}],
            "dataDir": f"{plan.scratch}/addresses",
        },
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet(plan: Plan) -> dict[str, Any]:
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": plan.authority},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "address": plan.node_ip,
        "port": KUBELET_PORT,
        "tlsCertFile": plan.certificate,
        "tlsPrivateKeyFile": plan.key,
        "clusterDNS": [plan.node_ip],
        "clusterDomain": DOMAIN,
        "resolvConf": plan.path("resolv.conf"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}/{plan.name}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "volumeStatsAggPeriod": "1s",  # else volumes are measured once in a minute or two
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "1s",
        "nodeLeaseDurationSeconds": _LEASE,
        "makeIPTablesUtilChains": False,
        "volumePluginDir": f"{plan.scratch}/plugins",
    }
