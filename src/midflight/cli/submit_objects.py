"""Submitting to a cluster: the objects that a job becomes, shown or created.

Shown they hold no secret: whoever applies them by hand fills in what is hidden.
"""

import json
from typing import TYPE_CHECKING

from midflight.cli import choosing, common_flags, messages, output
from midflight.controller.spec import Spec, shown
from midflight.protocol.views import JobView

if TYPE_CHECKING:
    from midflight.kubernetes.client import KubernetesClient


def show(spec: Spec, form: str) -> None:
    """As YAML for `kubectl apply -f -`, or as a JSON list. Nothing is asked of the cluster."""
    from midflight.kubernetes.api import paths, user
    from midflight.kubernetes.verbs import submit

    settings = choosing.settings(choosing.now(common_flags.config()))
    owner = user.by_credentials(settings)
    made = submit.rendered(shown(spec), owner)
    if form == "json":
        whole = {"apiVersion": "v1", "kind": "List", "items": made}
        print(json.dumps(whole, indent=2, ensure_ascii=False))
    elif form == "name":
        print("\n".join(paths.word(obj) for obj in made))
    else:
        print("---\n".join(output.as_yaml(obj) for obj in made), end="")
    if spec.secrets:
        messages.info(f"what is secret is hidden here: {', '.join(spec.secrets)}")


def create(cluster: "KubernetesClient", spec: Spec, form: str) -> JobView:
    """What is created is printed as kubectl does, unless another form was asked for."""
    created: list[str] = []
    job = cluster.create(spec, created.append)
    if not output.data(form, job, [spec.name]):
        for word in created:
            resource, _, name = word.partition("/")
            messages.created(resource, name)
    return job
