"""The cluster that other tests stand on: what they rely on holds, and nothing is left behind."""

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lightkube import Client, KubeConfig

from tests.kubernetes.plane.api import Api, ApiError, Json
from tests.kubernetes.plane.cluster import Cluster, phase, ready
from tests.kubernetes.plane.pod import OOM_KILL


def pod(name: str, command: list[str], **spec: Any) -> Json:
    container = {"name": "main", "image": "image", "command": command} | spec.pop("container", {})
    labels = {"app": name}
    rest = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [container], **rest},
    }


def python(code: str) -> list[str]:
    return ["python3", "-c", code]


def shell(code: str) -> list[str]:
    return ["sh", "-c", code]


def ending(cluster: Cluster, namespace: str, name: str) -> Json:
    """How the pod's container ended."""
    ended = cluster.wait_for("Pod", namespace, name, phase("Succeeded", "Failed"))
    state: Json = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    return state


def test_a_pod_runs_and_its_log_can_be_read(cluster: Cluster, namespace: str) -> None:
    cluster.create(pod("one", shell("echo first; echo second; exit 3")), namespace)
    assert ending(cluster, namespace, "one")["exitCode"] == 3
    assert cluster.log(namespace, "one") == "first\nsecond\n"
    assert cluster.log(namespace, "one", tailLines="1") == "second\n"
    assert cluster.log(namespace, "one", timestamps="true").split()[1::2] == ["first", "second"]


def test_a_log_can_be_followed_to_its_end(cluster: Cluster, namespace: str) -> None:
    cluster.create(pod("one", shell("for i in 1 2 3; do echo $i; sleep 0.1; done")), namespace)
    cluster.wait_for("Pod", namespace, "one", phase("Running", "Succeeded"))
    assert cluster.wait_for_log(namespace, "one", "3") == "1\n2\n3\n"


def test_a_container_is_in_a_world_of_its_own(cluster: Cluster, namespace: str) -> None:
    look = "echo $PPID $(hostname) $(pwd) $POD_IP; getent hosts $(hostname); touch /made-by-a-pod"
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    container = {"workingDir": "/not/here/before", "env": [address]}
    cluster.create(pod("one", shell(look), container=container), namespace)
    assert ending(cluster, namespace, "one")["exitCode"] == 0
    ip = (cluster.get("Pod", namespace, "one") or {})["status"]["podIP"]
    said = cluster.log(namespace, "one").split()
    assert said == ["0", "one", "/not/here/before", ip, ip, "one"]
    assert not Path("/made-by-a-pod").exists() and not Path("/not").exists()


def test_a_read_only_root_is_read_only_but_for_its_volumes(
    cluster: Cluster, namespace: str
) -> None:
    container = {
        "securityContext": {"readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "own", "mountPath": "/var/run/midflight"}],
    }
    try_it = shell("touch /var/run/midflight/yes && ! touch /opt/no")
    volumes = [{"name": "own", "emptyDir": {}}]
    cluster.create(pod("one", try_it, container=container, volumes=volumes), namespace)
    assert ending(cluster, namespace, "one")["exitCode"] == 0
    assert "Read-only" in cluster.log(namespace, "one")


def test_programs_can_be_run_in_a_container(cluster: Cluster, namespace: str) -> None:
    cluster.create(pod("one", shell("echo kept > /kept; exec sleep 100")), namespace)
    cluster.wait_for("Pod", namespace, "one", ready)
    with Client(KubeConfig.from_file(cluster.kubeconfig)) as client:
        ran = client.exec(
            "one",
            namespace=namespace,
            command=shell("cat - /kept; echo aside >&2; exit 4"),
            stdin="typed\n",
            stdout=True,
            stderr=True,
        )
    assert (ran.stdout, ran.stderr, ran.exit_code) == ("typed\nkept\n", "aside\n", 4)


@pytest.mark.parametrize("transport", ["websocket", "spdy"])
def test_kubectl_can_run_programs_too(
    cluster: Cluster,
    namespace: str,
    kubectl: Any,
    transport: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choice = "true" if transport == "websocket" else "false"
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", choice)
    cluster.create(pod("one", ["sleep", "100"]), namespace)
    cluster.wait_for("Pod", namespace, "one", ready)
    ran = kubectl("exec", "-n", namespace, "one", "--", "sh", "-c", "hostname; exit 5")
    assert (ran.stdout, ran.returncode) == ("one\n", 5)


def test_a_change_of_a_configmap_reaches_the_pod(cluster: Cluster, namespace: str) -> None:
    hosts = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hosts"}}
    cluster.create(hosts | {"data": {"hostfile": "one\n"}}, namespace)
    show = python(
        "import time; said = None\n"
        "while said != 'two\\n':\n"
        "    said = open('/etc/edl/hostfile').read(); time.sleep(0.01)"
    )
    mounted = {"volumeMounts": [{"name": "hosts", "mountPath": "/etc/edl"}]}
    volumes = [{"name": "hosts", "configMap": {"name": "hosts"}}]
    cluster.create(pod("one", show, container=mounted, volumes=volumes), namespace)
    cluster.wait_for("Pod", namespace, "one", phase("Running"))
    cluster.patch("ConfigMap", namespace, "hosts", {"data": {"hostfile": "two\n"}})
    assert ending(cluster, namespace, "one")["exitCode"] == 0


@pytest.mark.slow
def test_volumes_of_every_kind_are_where_the_manifest_says(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    size = {"storage": "1Mi"}
    shared: Json = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {"capacity": size, "hostPath": {"path": str(tmp_path / "disk")}, **shared}
    claim = {"resources": {"requests": size}, "volumeName": namespace, **shared}
    meta = {"name": "data"}
    for manifest in (
        {"kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": volume},
        {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim},
        {"kind": "ConfigMap", "metadata": meta, "data": {"COLOUR": "blue", "file": "config"}},
        {"kind": "Secret", "metadata": meta, "stringData": {"token": "hush"}},
    ):
        cluster.create({"apiVersion": "v1", **manifest}, namespace)
    label = {"path": "app", "fieldRef": {"fieldPath": "metadata.labels['app']"}}
    projected = [{"downwardAPI": {"items": [label]}}, {"secret": {"name": "data"}}]
    volumes = [
        {"name": "disk", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "config", "configMap": {"name": "data"}},
        {"name": "secret", "secret": {"secretName": "data", "defaultMode": 0o400}},
        {"name": "both", "projected": {"sources": projected}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [
        {"name": "disk", "mountPath": "/data", "subPath": "below"},
        {"name": "config", "mountPath": "/opt/here/file", "subPath": "file"},
        {"name": "secret", "mountPath": "/etc/midflight", "readOnly": True},
        {"name": "both", "mountPath": "/var/run/both"},
        {"name": "memory", "mountPath": "/dev/shm"},
    ]
    words = [
        {"configMapRef": {"name": "data"}},
        {"secretRef": {"name": "data"}, "prefix": "SECRET_"},
    ]
    show = (
        "cat /opt/here/file /etc/midflight/token /var/run/both/app /var/run/both/token;"
        "stat -Lc %a /etc/midflight/token; echo $(WORD) $SECRET_token; touch /data/x /dev/shm/x"
    )
    env = [{"name": "WORD", "value": "$(COLOUR)-ish"}]
    container = {"volumeMounts": mounts, "envFrom": words, "env": env}
    cluster.create(pod("one", shell(show), container=container, volumes=volumes), namespace)
    assert ending(cluster, namespace, "one")["exitCode"] == 0
    assert cluster.log(namespace, "one") == "confighushonehush400\nblue-ish hush\n"
    assert (tmp_path / "disk" / "below" / "x").exists() and not Path("/opt/here").exists()
    cluster.delete("PersistentVolume", namespace, namespace)


def test_pods_find_each_other_by_the_name_of_a_service(cluster: Cluster, namespace: str) -> None:
    spec = {"clusterIP": "None", "selector": {"app": "server"}, "publishNotReadyAddresses": True}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}
    cluster.create(service, namespace)
    serve = "import os, socket; s = socket.create_server((os.environ['IP'], 47100)); s.accept()"
    call = (
        "import socket, time\n"
        "while True:\n"
        f"    try: socket.create_connection(('web.{namespace}.svc', 47100)); break\n"
        "    except OSError: time.sleep(0.05)"
    )
    address = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    cluster.create(pod("caller", python(call)), namespace)
    cluster.create(pod("server", python(serve), container={"env": [address]}), namespace)
    assert ending(cluster, namespace, "caller")["exitCode"] == 0
    assert ending(cluster, namespace, "server")["exitCode"] == 0


def test_code_in_a_pod_is_its_service_account(cluster: Cluster, namespace: str) -> None:
    ask = (
        "import json, os, ssl, urllib.request as r\n"
        "d = '/var/run/secrets/kubernetes.io/serviceaccount/'\n"
        "url = 'https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}'.format(**os.environ)\n"
        "url += f\"/api/v1/namespaces/{open(d + 'namespace').read()}/configmaps\"\n"
        "token = {'Authorization': 'Bearer ' + open(d + 'token').read()}\n"
        "context = ssl.create_default_context(cafile=d + 'ca.crt')\n"
        "try: r.urlopen(r.Request(url, headers=token), context=context)\n"
        "except r.HTTPError as refused: print(refused.code, json.load(refused)['message'])"
    )
    cluster.create(pod("one", python(ask)), namespace)
    assert ending(cluster, namespace, "one")["exitCode"] == 0
    said = cluster.log(namespace, "one")
    assert said.startswith("403") and f"system:serviceaccount:{namespace}:default" in said


def test_last_words_and_running_out_of_memory_are_told(cluster: Cluster, namespace: str) -> None:
    words = {"terminationMessagePath": "/var/run/words"}
    cluster.create(
        pod("one", shell("echo bye > /var/run/words; echo said; sleep 100"), container=words),
        namespace,
    )
    cluster.wait_for("Pod", namespace, "one", ready)
    cluster.wait_for_log(namespace, "one", "said")
    cluster.patch("Pod", namespace, "one", {"metadata": {"annotations": {OOM_KILL: "main"}}})
    ended = ending(cluster, namespace, "one")
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (137, "OOMKilled", "bye\n")


def test_a_deleted_pod_has_its_grace_and_no_more(cluster: Cluster, namespace: str) -> None:
    polite = "trap 'echo asked >> /seen/it' TERM; echo up; while true; do sleep 0.02; done"
    seen = {"volumeMounts": [{"name": "seen", "mountPath": "/seen"}]}
    volumes = [{"name": "seen", "hostPath": {"path": str(cluster.plane.folder / "seen")}}]
    cluster.create(pod("polite", shell(polite), container=seen, volumes=volumes), namespace)
    cluster.create(
        pod("deaf", shell("trap '' TERM; echo up; while true; do sleep 1; done")), namespace
    )
    for name in ("polite", "deaf"):
        cluster.wait_for("Pod", namespace, name, ready)
        cluster.wait_for_log(namespace, name, "up")
        cluster.delete("Pod", namespace, name, grace=1)
    for name in ("polite", "deaf"):
        cluster.wait_gone("Pod", namespace, name, seconds=10)
    assert (cluster.plane.folder / "seen" / "it").read_text() == "asked\n"


def test_an_image_that_cannot_be_pulled_is_said_to_be_so(cluster: Cluster, namespace: str) -> None:
    cluster.create(pod("one", ["true"], container={"image": "missing/image:1"}), namespace)

    def refused(thing: Json) -> bool:
        states = thing["status"].get("containerStatuses", [])
        return any(s["state"].get("waiting", {}).get("reason") == "ErrImagePull" for s in states)

    cluster.wait_for("Pod", namespace, "one", refused)


def test_a_container_is_ready_when_its_probe_says_so(cluster: Cluster, namespace: str) -> None:
    probe = {"exec": {"command": ["test", "-e", "/well"]}, "periodSeconds": 1}
    slow = shell("sleep 0.3; touch /well; exec sleep 100")
    cluster.create(pod("one", slow, container={"readinessProbe": probe}), namespace)
    assert not ready(cluster.wait_for("Pod", namespace, "one", phase("Running")))
    cluster.wait_for("Pod", namespace, "one", ready)


def test_failed_containers_are_restarted_where_the_pod_says_so(
    cluster: Cluster, namespace: str
) -> None:
    twice = shell("test -e /own/mark && exit 0; touch /own/mark; exit 1")
    container = {"volumeMounts": [{"name": "own", "mountPath": "/own"}]}
    spec = {"restartPolicy": "OnFailure", "volumes": [{"name": "own", "emptyDir": {}}]}
    cluster.create(pod("one", twice, container=container, **spec), namespace)
    ended = cluster.wait_for("Pod", namespace, "one", phase("Succeeded"))
    assert ended["status"]["containerStatuses"][0]["restartCount"] == 1


@pytest.mark.slow
def test_pods_of_a_lost_node_are_evicted(cluster: Cluster, namespace: str) -> None:
    cluster.create(pod("one", ["sleep", "100"]), namespace)
    node = cluster.wait_for("Pod", namespace, "one", ready)["spec"]["nodeName"]
    cluster.nodes.kill(node)
    cluster.wait_for("Pod", namespace, "one", lambda p: "deletionTimestamp" in p["metadata"])
    assert not ready(cluster.get("Pod", namespace, "one") or {})
    cluster.nodes.start(node)  # it comes back and tells that nothing is left of its pods
    cluster.wait_gone("Pod", namespace, "one")


@pytest.mark.slow
def test_pods_outlive_a_restart_of_the_api_server(cluster: Cluster, namespace: str) -> None:
    cluster.create(pod("one", shell("sleep 1.5; exit 3")), namespace)
    before = cluster.wait_for("Pod", namespace, "one", phase("Running"))
    cluster.plane.restart_api_server()
    assert ending(cluster, namespace, "one")["exitCode"] == 3
    after = cluster.get("Pod", namespace, "one") or {}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


def test_others_may_do_only_what_they_are_let(cluster: Cluster, namespace: str) -> None:
    alice = Api(cluster.plane.kubeconfig_for_user("alice"))
    robot = Api(cluster.plane.kubeconfig_for_service_account(namespace, "default"))
    for api, name in ((alice, "alice"), (robot, f"system:serviceaccount:{namespace}:default")):
        with pytest.raises(ApiError, match=f'User "{name}" cannot list'):
            api.call("GET", f"/api/v1/namespaces/{namespace}/pods")


@pytest.mark.slow
def test_nothing_outlives_a_test_run_that_is_killed(cluster: Cluster) -> None:
    command = [sys.executable, "-m", "tests.kubernetes.plane", "up", "--nodes=1"]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        said = iter(run.stdout)
        kubeconfig = next(line for line in said if "KUBECONFIG=" in line).strip().split("=")[1]
        folder = Path(kubeconfig).parent
        started = [os.pidfd_open(pid) for pid in _processes_of(folder)]
        assert len(started) == 5  # etcd, API server, controllers, scheduler, node
        run.send_signal(signal.SIGKILL)
    for process in started:
        assert select.select([process], [], [], 30)[0], "something goes on without its starter"
        os.close(process)
    shutil.rmtree(folder)  # the next plane would do this, in a while


def _processes_of(folder: Path) -> list[int]:
    """Whose command lines name the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
