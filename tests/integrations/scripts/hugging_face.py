"""A tiny causal language model trained by Trainer, at a pace that leaves time to strike.

Only one import differs from what a script without Midflight has. Says where it ends in OUT/NAME.
"""

import argparse
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import torch
from pace import keep_pace
from transformers import LlamaConfig, LlamaForCausalLM, TrainerCallback, TrainingArguments

from midflight.integrations.transformers import Trainer

SAMPLES, VOCABULARY = 320, 32


class Sentences(torch.utils.data.Dataset):
    """Each continues by a rule; some labels are left out, so that samples weigh differently."""

    def __init__(self, seed: int, samples: int = SAMPLES) -> None:
        source = random.Random(seed)
        self.rows = []
        for _ in range(samples):
            start, step = source.randrange(VOCABULARY), source.randrange(1, 4)
            words = [(start + step * place) % VOCABULARY for place in range(12)]
            hidden = source.randrange(9)
            self.rows.append((words, [-100] * hidden + words[hidden:]))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words, labels = self.rows[index]
        return {"input_ids": torch.tensor(words), "labels": torch.tensor(labels)}


class Pace(TrainerCallback):
    """Slow while somebody watches, and without pauses from then on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        keep_pace(self.folder, state.global_step)


class Death(TrainerCallback):
    """Of one member, in the midst of an evaluation."""

    def __init__(self, member: str) -> None:
        self.member = member

    def on_prediction_step(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        if os.environ.get("MIDFLIGHT_MEMBER") == self.member and state.epoch == 3:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--save-steps", type=int, default=100_000)
    parser.add_argument("--dies", default="", help="the member that does, while it evaluates")
    parser.add_argument("--order", default="random")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes, **heads))
    arguments = TrainingArguments(
        output_dir=str(options.out / "kept"),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=options.accumulate,
        num_train_epochs=8,
        max_steps=options.steps,
        learning_rate=1e-2,
        warmup_steps=10,
        logging_steps=1,
        eval_strategy="epoch",
        save_steps=options.save_steps,
        train_sampling_strategy=options.order,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=Sentences(1),
        eval_dataset=Sentences(2, 40),
        callbacks=[Pace(options.out), Death(options.dies)],
    )
    trainer.train(resume_from_checkpoint=options.resume or None)
    trainer.save_model()
    history = trainer.state.log_history
    result = {
        "step": trainer.state.global_step,
        "epoch": trainer.state.epoch,
        "losses": [entry["loss"] for entry in history if "loss" in entry],
        "norms": [entry["grad_norm"] for entry in history if "loss" in entry],
        "rates": [entry["learning_rate"] for entry in history if "loss" in entry],
        "evaluated": [entry["eval_loss"] for entry in history if "eval_loss" in entry],
        "weights": [p.detach().double().sum().item() for p in model.parameters()],
        "first": trainer.is_world_process_zero(),
    }
    member = os.environ.get("MIDFLIGHT_MEMBER", "m0")
    (options.out / f"{member}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
