"""A script that builds its DataLoader itself: words of many lengths, padded by a collate_fn."""

import argparse
import random

import torch
from torch.utils.data import DataLoader, Dataset

import midflight as mf


class Words(Dataset):
    """Made-up words; the question is whether a word has more letters 1 than letters 2."""

    def __init__(self, count: int) -> None:
        source = random.Random(7)
        self.words = [source.choices((1, 2), k=source.randint(1, 12)) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> tuple[list[int], float]:
        word = self.words[index]
        return word, float(word.count(1) > word.count(2))


def padded(samples: list[tuple[list[int], float]]) -> dict[str, torch.Tensor]:
    words = [torch.tensor(word) for word, _ in samples]
    answers = torch.tensor([answer for _, answer in samples])
    return {"words": torch.nn.utils.rnn.pad_sequence(words, batch_first=True), "answers": answers}


class Reader(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters = torch.nn.EmbeddingBag(3, 8, mode="sum", padding_idx=0)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.letters(words)).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    words = Words(3_000)
    with mf.join(model=model, optimizer=optimizer) as job:
        sampler = job.sampler(words, global_batch_size=100, epochs=options.epochs)
        loader = DataLoader(
            words, batch_sampler=sampler, collate_fn=padded, num_workers=options.workers
        )
        for batch in job.follow(loader, sampler):
            guess = model(batch["words"])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(guess, batch["answers"])
            job.step(loss)
            job.log(loss=loss)


if __name__ == "__main__":
    main()
