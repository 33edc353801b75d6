"""What an elastic job refuses of TrainingArguments, and what it says then."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed; `make test` does")

from midflight.integrations.transformers.objections import objection

PLAIN: dict[str, Any] = {
    "deepspeed": None,
    "fsdp": [],
    "parallelism_config": None,
    "world_size": 1,
    "n_gpu": 1,
    "fp16": False,
    "torch_compile": False,
    "auto_find_batch_size": False,
    "train_sampling_strategy": "random",
    "optim": SimpleNamespace(value="adamw_torch_fused"),
}


def test_plain_arguments_are_accepted() -> None:
    assert objection(SimpleNamespace(**PLAIN)) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deepspeed": "zero3.json"}, "resume_from_checkpoint"),
        ({"fsdp": ["full_shard"]}, "restarts such a script at each change of size"),
        ({"parallelism_config": object()}, "fixed number of processes"),
        ({"world_size": 2}, "before TrainingArguments are made"),
        ({"n_gpu": 4}, "CUDA_VISIBLE_DEVICES"),
        ({"fp16": True}, "use bf16"),
        ({"torch_compile": True}, "leave it out"),
        ({"auto_find_batch_size": True}, "gradient_accumulation_steps"),
        ({"train_sampling_strategy": "group_by_length"}, "use one of random, sequential"),
        ({"optim": SimpleNamespace(value="lomo")}, "use another"),
    ],
)
def test_what_cannot_be_resized_is_refused_with_what_to_do_instead(
    given: dict[str, Any], said: str
) -> None:
    assert said in (objection(SimpleNamespace(**{**PLAIN, **given})) or "")
