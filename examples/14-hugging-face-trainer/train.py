"""Hugging Face's Trainer, elastic: only the import of Trainer is another one. Made-up sentences."""

import argparse
import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

from midflight.integrations.transformers import Trainer

WORDS = 64


class Sentences(torch.utils.data.Dataset):
    """Each goes on as it begins: every word is so many after the one before it."""

    def __init__(self, count: int, seed: int) -> None:
        source = random.Random(seed)
        begins = [(source.randrange(WORDS), source.randrange(1, 5)) for _ in range(count)]
        self.rows = [[(start + step * n) % WORDS for n in range(16)] for start, step in begins]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.tensor(self.rows[index])
        return {"input_ids": words, "labels": words}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default="kept")
    options = parser.parse_args()
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, num_attention_heads=2, **sizes))
    arguments = TrainingArguments(
        output_dir=options.out,
        per_device_train_batch_size=8,  # what a device holds
        gradient_accumulation_steps=4,  # of these in a global batch, on however many devices
        num_train_epochs=options.epochs,
        learning_rate=1e-2,
        logging_steps=10,
        eval_strategy="epoch",
        report_to=[],
    )
    data, others = Sentences(1_000, seed=7), Sentences(100, seed=8)
    trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=others)
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
