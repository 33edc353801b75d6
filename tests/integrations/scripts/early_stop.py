"""A linear model by somebody's own Trainer, with an own loss, metrics and early stopping."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import EarlyStoppingCallback, TrainingArguments

from midflight.integrations.transformers import Elastic


class Line(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        guess = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(guess, y), "logits": guess}


class Points(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 77

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x = torch.tensor([index / 77])
        return {"x": x, "y": 3 * x + 1}


class OwnTrainer(transformers.Trainer):
    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(**inputs)
        return (2 * outputs["loss"], outputs) if return_outputs else 2 * outputs["loss"]


class ElasticTrainer(Elastic, OwnTrainer):
    pass


def odd(_: Any) -> dict[str, float]:
    """A figure that members on different machines might not agree on: it is another in each."""
    return {"odd": float(os.environ["MIDFLIGHT_MEMBER"].removeprefix("m"))}


def main() -> None:
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=str(out / "kept"),
        per_device_train_batch_size=8,
        num_train_epochs=20,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=10,
        save_steps=10,
        load_best_model_at_end=True,
        metric_for_best_model="odd",
        label_names=["y"],
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = ElasticTrainer(
        model=Line(),
        args=arguments,
        train_dataset=Points(),
        eval_dataset=Points(),
        compute_metrics=odd,
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2)],
    )
    trainer.train()
    state = trainer.state
    result = {
        "step": state.global_step,
        "best": state.best_model_checkpoint,
        "history": state.log_history[:-1],  # its last entry is how long this member took
    }
    (out / f"{os.environ['MIDFLIGHT_MEMBER']}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
