"""What other operators have installed, as far as ours looks at it."""

from typing import Any

from midflight.kubernetes import names

Object = dict[str, Any]


def foreign_crd(name: str, api: str, kind: str) -> Object:
    """As somebody else's operator brings it, made with the API of its day."""
    group, _, version = api.partition("/")
    return {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": name, "singular": kind.lower()},
            "scope": "Namespaced",
            "preserveUnknownFields": True,
            "versions": [{"name": version, "served": True, "storage": True}],
        },
    }


def deployment(name: str) -> Object:
    container = {"name": "operator", "image": f"registry/kubeflow/{name}:v1"}
    labels = {"control-plane": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def webhook() -> Object:
    rule = {
        "apiGroups": [names.PYTORCH_GROUP],
        "apiVersions": ["v1"],
        "resources": ["pytorchjobs"],
        "operations": ["DELETE"],
    }
    one = {
        "name": "validator.example.org",
        "rules": [rule],
        "clientConfig": {"url": "https://localhost:9/"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
    }
    return {"metadata": {"name": "theirs"}, "webhooks": [one]}
