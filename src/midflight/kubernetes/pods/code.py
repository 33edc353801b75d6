"""Fetching a job's code in pods: one that finds out the commit, and then a container in each pod.

The commit is resolved once, so that a worker that comes later has what the others have. Both wait
for a source that is away: the first begins anew again and again, so that the job can say why, and
the container of a pod, whose job may have trained for days, asks again itself. Addresses,
names and passwords reach the scripts through the environment and are never part of a script or of
an argument that a person wrote; a password comes from the job's Secret and is given only to the
source's own host, through a program that git asks. No image of a third party is given one: what
fetches is Midflight's own, the job's, or one that the user has named.
"""

from typing import Any

from midflight.backends.local.code import Source, source_of
from midflight.controller.spec import LOGIN, Spec
from midflight.controller.state import Job
from midflight.deadlines import FETCH
from midflight.kubernetes import names
from midflight.kubernetes.pods import PodDefaults
from midflight.kubernetes.pods.cluster_defaults import add_limits, add_placement
from midflight.kubernetes.pods.init_resources import init_resources
from midflight.kubernetes.pods.security import USER, confined
from midflight.kubernetes.pods.volumes import add_volume, mount, mounted_at
from midflight.kubernetes.resources.fields import Object
from midflight.kubernetes.resources.labels import object_labels, owner_reference, selector
from midflight.kubernetes.resources.templates import (
    chief_role,
    main_container,
    part,
    template_of,
    thaw,
)

ROLE = "code"  # of the pod that finds out the commit
WORKING_DIR = "/root"  # as Arena has it, where nothing is said
SHORT = 10.0  # seconds that one try of the first pod lasts; then its answer can be seen
COMMIT_FILE = "/dev/termination-log"  # where Kubernetes reads a last word
SECRET_KEYS = dict(zip(LOGIN, ("username", "password"), strict=True))  # as in basic-auth Secrets
PATIENCE = "MIDFLIGHT_PATIENCE"  # seconds until a source that does not answer is given up
_DEPTH = "GIT_SYNC_DEPTH"
_PLACEMENT = (
    "imagePullSecrets",
    "nodeSelector",
    "tolerations",
    "affinity",
    "priorityClassName",
    "schedulerName",
    "dnsPolicy",
    "dnsConfig",
    "hostAliases",
)

# In all scripts: no `$(` and no `$$`, which Kubernetes would take for its own.
_AGAIN = r"""set -eu
trap 'exit 143' TERM
now=`date +%s`
end=`expr "$now" + "$MIDFLIGHT_PATIENCE"`
again() { # a network may be back in a moment
  pause=1
  while :; do
    code=0
    "$@" || code=$?
    now=`date +%s`
    if [ "$code" -eq 0 ] || [ "$now" -ge "$end" ]; then return "$code"; fi
    echo "trying again in $pause s" >&2
    sleep "$pause" & wait "$!"
    if [ "$pause" -lt 30 ]; then pause=`expr "$pause" "*" 2`; fi
  done
}
"""
_ASKING = (
    _AGAIN + r"""
export GIT_TERMINAL_PROMPT=0 LC_ALL=C GIT_SSH_COMMAND="${GIT_SSH_COMMAND:-ssh -oBatchMode=yes}"
if [ -n "${GIT_SYNC_PASSWORD:-}" ]; then
  export GIT_ASKPASS="$HOME/askpass"
  cat > "$GIT_ASKPASS" <<'END'
#!/bin/sh
case "$1" in
*[/@]"$MIDFLIGHT_GIT_HOST"["'"/]*) ;;
*) exit 1 ;; # the host of a submodule, say
esac
case "$1" in
Username*) printf '%s\n' "${GIT_SYNC_USERNAME:-}" ;;
*) printf '%s\n' "$GIT_SYNC_PASSWORD" ;;
esac
END
  chmod 700 "$GIT_ASKPASS"
fi
git() { command git -c credential.helper= "$@"; }
wanted="${MIDFLIGHT_COMMIT:-${MIDFLIGHT_REVISION:-${MIDFLIGHT_BRANCH:-HEAD}}}"
absent() {
  echo "$MIDFLIGHT_SOURCE has no branch, tag or commit $wanted" >&2
"""
    f"  exit {names.NO_SUCH_COMMIT}\n}}\n"
)
_RESOLVE = (
    _ASKING
    + r"""found() {
  printf '%s' "$1" > "$MIDFLIGHT_COMMIT_FILE"
  printf '%s is at %s\n' "$wanted" "$1"
  exit 0
}
if printf '%s\n' "$wanted" | grep -Eqx '[0-9a-f]{40}([0-9a-f]{24})?'; then
  again git ls-remote -- "$MIDFLIGHT_SOURCE" HEAD > "$HOME/refs" # whether it answers at all
  found "$wanted"
fi
again git ls-remote -- "$MIDFLIGHT_SOURCE" > "$HOME/refs"
for name in "refs/heads/$wanted" "refs/tags/$wanted^{}" "refs/tags/$wanted" "$wanted"; do
  while read -r commit ref; do
    if [ "$ref" = "$name" ]; then found "$commit"; fi
  done < "$HOME/refs"
done
# The beginning of a commit, say: only the history knows it.
again git clone --quiet --bare --filter=tree:0 -- "$MIDFLIGHT_SOURCE" "$HOME/history"
if git -C "$HOME/history" rev-parse --quiet --verify "$wanted^{commit}" > "$HOME/commit"; then
  read -r commit < "$HOME/commit"
  found "$commit"
fi
absent
"""
)
_CLONE = (
    _ASKING
    + r"""place="$MIDFLIGHT_CODE/$MIDFLIGHT_REPOSITORY"
rm -rf "$place"
git init --quiet "$place"
cd "$place"
git remote add origin "$MIDFLIGHT_SOURCE"
known() { git rev-parse --quiet --verify "$1^{commit}" > /dev/null; }
fetch_wanted() {
  code=0
  git fetch --quiet origin "$wanted" 2> "$HOME/answer" || code=$?
  cat "$HOME/answer" >&2
  if [ "$code" -ne 0 ] && grep -Eqi "$no_such" "$HOME/answer"; then absent; fi
  return "$code"
}
no_such="couldn't find remote ref|not our ref|unadvertised object|unable to find [0-9a-f]{40}"
if [ -n "${GIT_SYNC_DEPTH:-}" ] && git fetch --quiet --depth "$GIT_SYNC_DEPTH" origin "$wanted"
then
  wanted=FETCH_HEAD
else
  again git fetch --quiet --tags origin '+refs/heads/*:refs/remotes/origin/*'
  if ! known "$wanted"; then # no branch leads to it, or it is one
    again fetch_wanted
    wanted=FETCH_HEAD
  fi
fi
git checkout --quiet --detach "$wanted"
if [ -e .gitmodules ]; then again git submodule --quiet update --init --recursive; fi
git log -1 --format='%H %s'
"""
)
_WITH_RSYNC = (
    _AGAIN
    + r"""
export RSYNC_RSH="${RSYNC_RSH:-ssh -oBatchMode=yes}"
"""
)
_LOOK = _WITH_RSYNC + 'again rsync --list-only --no-recursive -- "$MIDFLIGHT_SOURCE" > /dev/null\n'
_RSYNC = _WITH_RSYNC + 'again rsync -avP -- "$MIDFLIGHT_SOURCE" "$MIDFLIGHT_CODE/"\n'


def code_pod(obj: Object, job: Job, defaults: PodDefaults) -> dict[str, Any]:
    """Its container's last word is the commit; rsync has none, and is only tried.

    A source may be away for a while, so the kubelet starts the container again, after ever longer
    pauses, until the pod's deadline.
    """
    spec = job.spec
    assert spec.sync is not None
    template = part(template_of(obj, chief_role(obj)).value, "spec").value
    volumes = {"/tmp": "midflight-tmp"}
    script = _RESOLVE if spec.sync.mode == "git" else _LOOK
    container = _container(obj, job, script, volumes, defaults)
    container["env"].append({"name": PATIENCE, "value": str(int(SHORT))})
    container["env"].append({"name": "MIDFLIGHT_COMMIT_FILE", "value": COMMIT_FILE})
    container["terminationMessagePath"] = COMMIT_FILE
    placement = {key: thaw(template[key]) for key in _PLACEMENT if template.get(key) is not None}
    add_placement(placement, defaults)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.code_pod(spec.name),
            "namespace": spec.namespace,
            "labels": {**selector(spec), **object_labels(spec.name), names.ROLE: ROLE},
            "ownerReferences": [owner_reference(obj)],
        },
        "spec": {
            **placement,
            "restartPolicy": "OnFailure",
            "activeDeadlineSeconds": int(FETCH),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [{"name": name, "emptyDir": {}} for name in volumes.values()],
        },
    }


def add_code(pod: dict[str, Any], obj: Object, job: Job, defaults: PodDefaults) -> str:
    """The container that fetches, before the pod's own ones; returns where its code is mounted.

    A template may have a volume there already, which is then the one that is filled.
    """
    place = f"{pod['containers'][0].get('workingDir', WORKING_DIR).rstrip('/')}/code"
    code = mounted_at(pod, place)
    if not code:
        code = add_volume(pod, "code", {"emptyDir": {}})
        mount(pod, code, place)
    temporary = add_volume(pod, "fetching", {"emptyDir": {}})
    script = _CLONE if job.spec.sync and job.spec.sync.mode == "git" else _RSYNC
    container = _container(obj, job, script, {names.CODE_DIR: code, "/tmp": temporary}, defaults)
    container["env"].append({"name": PATIENCE, "value": str(int(FETCH))})
    container["resources"] = init_resources(pod["containers"][0])
    pod["initContainers"] = [container, *pod.get("initContainers", ())]
    return place


def _container(
    obj: Object, job: Job, script: str, volumes: dict[str, str], defaults: PodDefaults
) -> dict[str, Any]:
    """`volumes` are names by path."""
    spec = job.spec
    main = thaw(main_container(template_of(obj, chief_role(obj))).value)
    add_limits(main, defaults)
    assert spec.sync is not None
    return {
        "name": names.CODE_CONTAINER,
        "image": spec.container.sync_image or defaults.runtime_image or main["image"],
        "command": ["sh", "-c", script],
        "env": _environment(obj, job),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": init_resources(main),
        "securityContext": confined(),
        "volumeMounts": [{"name": name, "mountPath": path} for path, name in volumes.items()],
    }


def _environment(obj: Object, job: Job) -> list[dict[str, Any]]:
    """The user's own, for a proxy say, and what to fetch."""
    source = source_of(job.spec, job.commit)
    own = thaw(main_container(template_of(obj, chief_role(obj))).value).get("env", [])
    said = {
        "HOME": "/tmp",
        "MIDFLIGHT_CODE": names.CODE_DIR,
        "MIDFLIGHT_SOURCE": source.url,
        "MIDFLIGHT_COMMIT": source.commit,
    }
    if source.mode == "git":
        said |= {
            "MIDFLIGHT_REPOSITORY": source.repository,
            "MIDFLIGHT_BRANCH": source.branch,
            "MIDFLIGHT_REVISION": source.revision,
            "MIDFLIGHT_GIT_HOST": _host(source.url),
        }
    kept = [each for each in own if _is_kept(each["name"]) and each["name"] not in said]
    ours = [{"name": name, "value": value.replace("$", "$$")} for name, value in said.items()]
    return [*kept, *ours, *(_login(job.spec, source) if source.mode == "git" else ())]


def _is_kept(name: str) -> bool:
    return name == _DEPTH or not name.startswith(("GIT_SYNC_", "MIDFLIGHT_"))


def _login(spec: Spec, source: Source) -> list[dict[str, Any]]:
    """From the job's Secret, if it has one; from the object where somebody wrote it there."""
    if source.password:
        values = zip(LOGIN, (source.username, source.password), strict=True)
        return [{"name": name, "value": value.replace("$", "$$")} for name, value in values]
    secret = names.git_secret(spec.name)
    return [
        {
            "name": name,
            "valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": True}},
        }
        for name, key in SECRET_KEYS.items()
    ]


def _host(url: str) -> str:
    """Of an address with a scheme, with its port and without a user."""
    _, scheme, rest = url.partition("://")
    return rest.split("/")[0].rpartition("@")[2] if scheme else ""
