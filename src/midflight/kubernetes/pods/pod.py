"""The pod of an instance: the object's own template, with what Midflight needs added to it.

A worker runs an agent, whatever command its template has. The chief runs the user's command, or a
run over it where the command is what the members are to run. Each instance of a job of fixed size,
and of an elastic one that starts torchrun, runs the user's command, in the environment that
Kubeflow's operator gives it, and needs nothing of Midflight in its image. Pods never start again by
themselves: the controller decides that.
"""

from typing import Any

from midflight.backends.words import in_place_of_the_shell, runs_in_workers
from midflight.controller.roster import is_elastic, worker_name
from midflight.controller.spec import Kind, Spec
from midflight.controller.state import Instance, Job, Role
from midflight.deadlines import GRACE, JOIN
from midflight.kubernetes import names
from midflight.kubernetes.pods import PodDefaults, code, gang, volumes
from midflight.kubernetes.pods.cluster_defaults import add_limits, add_placement
from midflight.kubernetes.pods.environment import POD_IP, environment
from midflight.kubernetes.pods.init_resources import LEAST, init_resources
from midflight.kubernetes.pods.security import confined, secure, security_of
from midflight.kubernetes.resources.elastic_policy import (
    chief_host,
    may_run_torchrun,
    torchrun_in_every_pod,
    torchrun_variables,
)
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.job_spec import is_shell_text, words_of
from midflight.kubernetes.resources.labels import labels_of, owner_reference
from midflight.kubernetes.resources.replicas import has_no_master
from midflight.kubernetes.resources.templates import (
    main_container,
    part,
    template_mark,
    template_of,
    thaw,
)
from midflight.python310 import OLDEST, RUN_MODULE

_LAST = 2  # of those, for the agent itself after its members are gone
_NODE_TROUBLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_PYTORCH_PORT = "pytorchjob-port"  # what Kubeflow's users call the master's port
# What the image says of both variables is kept, which a pod's `env` could not do.
_WITH_RUNTIME = (
    f'export PYTHONPATH="{names.RUNTIME_DIR}${{PYTHONPATH:+:$PYTHONPATH}}" '
    f'PATH="$PATH:{names.RUNTIME_DIR}/bin"; exec "$0" "$@"'
)
_OLDEST = ".".join(map(str, OLDEST))
_IF_USABLE = (
    f'if ! python3 -c "import sys; sys.exit(sys.version_info < {OLDEST})" 2> /dev/null; then '
    'found=`python3 -V 2>&1` || found="no python3"; '
    f'echo "{names.UNUSABLE_IMAGE} has $found, and Midflight needs Python {_OLDEST} or later: use '
    f'one that has it" >&2; exit {names.UNUSABLE}; fi; '
)
# An image whose Python is too old for Midflight's torchrun has its own.
_OWN_TORCHRUN_IF_THERE = (
    f'if python3 -c "import sys; sys.path[:] = filter(None, sys.path); '
    f'assert sys.version_info >= {OLDEST}; import midflight.torchrun" 2>/dev/null; '
    f'then exec python3 -c "{RUN_MODULE}" midflight.shims "$@"; fi; exec "$@"'
)


def render(obj: Object, job: Job, instance: Instance, defaults: PodDefaults) -> dict[str, Any]:
    """For a job whose spec was read from this object. The object is left alone."""
    template = thaw(template_of(obj, instance.role).value)
    meta, pod = template.get("metadata", {}), template["spec"]
    pod |= {"restartPolicy": "Never", "hostname": _hostname(obj, job.spec, instance)}
    pod.setdefault("terminationGracePeriodSeconds", int(GRACE))
    pod.setdefault("enableServiceLinks", False)  # their variables could be taken for Midflight's
    add_placement(pod, defaults)
    pod["tolerations"] = _with_tolerations(pod.get("tolerations") or [], defaults.node_loss)
    if pod.get("hostNetwork"):
        pod.setdefault("dnsPolicy", "ClusterFirstWithHostNet")  # or no Service has a name
    main = pod["containers"][0]
    main.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")  # why it has failed
    told = torchrun_variables(obj, job.spec) if may_run_torchrun(obj, job.spec) else {}
    for each in pod["containers"] if job.spec.kind is Kind.PYTORCHJOB else [main]:
        each["env"] = environment(each.get("env", []), job, instance, master_port(obj), told)
    _set_account(pod, job.spec, instance)
    secure(pod, security_of(obj, defaults.security))
    _set_command(obj, pod, job, instance)
    for each in [*pod.get("initContainers", ()), *pod["containers"]]:
        add_limits(each, defaults)
    _add_volumes(pod, job, instance, defaults)
    fetched = code.add_code(pod, obj, job, defaults) if job.spec.sync else ""
    volumes.add_user_name(pod)
    volumes.add_writable(pod, main.get("workingDir", ""), fetched)
    if is_elastic(job.spec) and defaults.runtime_image:
        _add_runtime(pod, defaults.runtime_image, torchrun_in_every_pod(job.spec))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": instance.name,
            "namespace": job.spec.namespace,
            "labels": {
                **meta.get("labels", {}),
                **gang.labels(obj, job.spec),
                **labels_of(job.spec, instance),
            },
            "annotations": {
                **meta.get("annotations", {}),
                **gang.annotations(obj, job.spec),
                names.TEMPLATE: template_mark(obj, instance.role),
            },
            "ownerReferences": [owner_reference(obj)],
        },
        "spec": pod,
    }


def own_grace(obj: Object, instance: Instance) -> int | None:
    """Seconds between SIGTERM and SIGKILL, None if the template does not say."""
    spec = part(template_of(obj, instance.role).value, "spec").value
    return spec.get("terminationGracePeriodSeconds")


def master_port(obj: Object) -> int:
    """Of a PyTorchJob of fixed size."""
    ports = main_container(template_of(obj, Role.MASTER)).value.get("ports") or ()
    named = [port for port in ports if port.get("name") == _PYTORCH_PORT]
    return int((named[0].get("containerPort") if named else None) or names.MASTER_PORT)


def _with_tolerations(given: list[Any], seconds: int) -> list[Any]:
    """Five minutes, which is what clusters add, is long for a job that could go on elsewhere."""
    keys = {each.get("key") for each in given}
    if None in keys:  # it tolerates everything, which is the user's own choice
        return given
    added = [
        {
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for key in _NODE_TROUBLE
        if key not in keys
    ]
    return [*given, *added]


def _hostname(obj: Object, spec: Spec, instance: Instance) -> str:
    """Its own name; as Kubeflow counts them where there is no Master."""
    if spec.kind is Kind.ETJOB or not has_no_master(obj):
        return instance.name
    if _is_chief(instance):
        return chief_host(obj, spec)
    return worker_name(spec, instance.index + 1)


def _is_chief(instance: Instance) -> bool:
    return instance.role is not Role.WORKER


# --- words ----------------------------------------------------------------------------------------


def _set_command(obj: Object, pod: dict[str, Any], job: Job, instance: Instance) -> None:
    main = pod["containers"][0]
    words = _in_place(words_of(main_container(template_of(obj, instance.role))))
    if not is_elastic(job.spec):
        if words:  # the image's own command, otherwise
            main["command"] = list(words)
            main.pop("args", None)
        return
    main.pop("args", None)
    if torchrun_in_every_pod(job.spec):
        main["command"] = ["sh", "-c", _OWN_TORCHRUN_IF_THERE, "sh", *words]
        return
    if not _is_chief(instance):
        main["command"] = _agent(pod, job, instance)
        return
    if runs_in_workers(job.spec.command, job.spec.run_in):
        main["command"] = [*_module("midflight.run"), *_sizes(job), "--", *words]
    else:
        main["command"] = [*_module("midflight.shims"), *words]
    _add_port(main)
    if instance.role is Role.LAUNCHER:
        _ask_for_little(main)


def _in_place(words: tuple[str, ...]) -> tuple[str, ...]:
    """The user's words; a shell that would only wait is replaced by what it starts."""
    if is_shell_text(words):
        return (*words[:2], in_place_of_the_shell(words[2]))
    return words


def _agent(pod: dict[str, Any], job: Job, instance: Instance) -> list[str]:
    spec = job.spec
    grace = max(pod["terminationGracePeriodSeconds"] - _LAST, 1)
    launcher = f"{names.launcher_service(spec.name)}.{spec.namespace}.svc:{names.PORT}"
    return [
        *_module("midflight.agent"),
        *("--join", launcher, "--token-file", names.TOKEN_FILE),
        *("--name", instance.name, "--slots", str(_slots(spec)), "--address", f"$({POD_IP})"),
        *("--grace", str(grace), "--join-timeout", str(JOIN)),
    ]


def _sizes(job: Job) -> tuple[str, ...]:
    spec, each = job.spec, _slots(job.spec)
    now = min(max(job.wanted, spec.least), spec.most)  # not what it once began with
    return (
        *("-np", str(now * each)),
        *("--min-np", str(spec.least * each), "--max-np", str(spec.most * each)),
    )


def _slots(spec: Spec) -> int:
    """Members that fit in one worker."""
    return max(spec.gpus, 1)


def _module(name: str) -> tuple[str, ...]:
    """A file in the working directory must not be taken for a module of ours."""
    return ("python3", "-c", RUN_MODULE, name)


# --- the rest of it -------------------------------------------------------------------------------


def _set_account(pod: dict[str, Any], spec: Spec, instance: Instance) -> None:
    """Nobody but the chief of an elastic job talks to the API server, unless the user says so."""
    if pod.get("serviceAccountName"):
        return
    if is_elastic(spec) and _is_chief(instance):
        pod["serviceAccountName"] = names.service_account(spec.name)
        pod["automountServiceAccountToken"] = True
    else:
        pod.setdefault("automountServiceAccountToken", False)


def _add_volumes(pod: dict[str, Any], job: Job, instance: Instance, defaults: PodDefaults) -> None:
    spec = job.spec
    if is_elastic(spec):
        volumes.add_token(pod, names.token_secret(spec.name, job.uid, defaults.key))
        volumes.add_job_folder(pod)
        if _is_chief(instance):
            volumes.add_hosts(pod, spec.name)
    if instance.role is not Role.LAUNCHER:
        volumes.add_shared_memory(pod)


def _add_runtime(pod: dict[str, Any], image: str, own_torchrun: bool) -> None:
    """`own_torchrun`: an image that cannot run Midflight may do without."""
    volume = volumes.add_volume(pod, "runtime", {"emptyDir": {}})
    volumes.mount(pod, volume, names.RUNTIME_DIR)
    provide = {
        "name": "midflight",
        "image": image,
        "command": ["midflight-provide", names.RUNTIME_DIR],
        "resources": init_resources(pod["containers"][0]),
        "securityContext": confined(),
        "volumeMounts": [{"name": volume, "mountPath": names.RUNTIME_DIR}],
    }
    pod["initContainers"] = [provide, *pod.get("initContainers", ())]
    main = pod["containers"][0]
    script = _WITH_RUNTIME if own_torchrun else _IF_USABLE + _WITH_RUNTIME
    main["command"] = ["sh", "-c", script, *main["command"]]


def _add_port(main: dict[str, Any]) -> None:
    ports = main.setdefault("ports", [])
    if all(port.get("containerPort") != names.PORT for port in ports):
        ports.append({"name": "coordinator", "containerPort": names.PORT})


def _ask_for_little(main: dict[str, Any]) -> None:
    """A launcher does little, and is scheduled and evicted as one that has said what it needs."""
    resources = main.setdefault("resources", {})
    given = {**resources.get("limits", {}), **resources.get("requests", {})}
    if not given:
        resources["requests"] = dict(LEAST)
