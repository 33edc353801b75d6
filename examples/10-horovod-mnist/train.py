"""Digits, as users of Elastic Horovod train them: epochs, an elastic sampler, a test at the end.

The data is made on the spot: ten blurred patterns of 14 by 14 points instead of handwriting.
Nothing in it knows Midflight.
"""

import argparse

import horovod.torch as hvd
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 3)
        self.first = torch.nn.Linear(8 * 6 * 6, 32)
        self.second = torch.nn.Linear(32, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        seen = functional.max_pool2d(functional.relu(self.conv(images)), 2)
        return self.second(functional.relu(self.first(seen.flatten(1))))


def digits(count: int, seed: int) -> TensorDataset:
    """The same ten patterns in every set, with noise of its own."""
    patterns = torch.randn(10, 1, 14, 14, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(count) % 10
    noise = torch.randn(count, 1, 14, 14, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(patterns[labels] + noise, labels)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=3200)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--batches-per-commit", type=int, default=5)
    return parser.parse_args()


def test(model: torch.nn.Module, dataset: TensorDataset) -> float:
    """The accuracy, averaged over what each worker has seen of the set."""
    images, labels = (part[hvd.rank() :: hvd.size()] for part in dataset.tensors)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean()
    return float(hvd.allreduce(right, name="accuracy"))


def main() -> None:
    options = read_options()
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    train_set, test_set = digits(options.samples, seed=1), digits(500, seed=2)
    sampler = hvd.elastic.ElasticSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=options.batch_size, sampler=sampler)
    model = Net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=options.lr * hvd.size(), momentum=0.5),
        named_parameters=model.named_parameters(),
    )

    @hvd.elastic.run
    def train(state: hvd.elastic.TorchState) -> None:
        while state.epoch < options.epochs:
            for number, (images, labels) in enumerate(loader):
                state.optimizer.zero_grad()
                loss = functional.cross_entropy(state.model(images), labels)
                loss.backward()
                state.optimizer.step()
                state.step += 1
                state.sampler.record_batch(number, options.batch_size)
                if state.step % 10 == 0:
                    print(f"Step #{state.step}    Loss: {loss.item():.6f}", flush=True)
                if state.step % options.batches_per_commit == 0:
                    state.commit()
            accuracy = test(state.model, test_set)
            if hvd.rank() == 0:
                print(f"Epoch {state.epoch}: accuracy {accuracy:.1%} with {hvd.size()}", flush=True)
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)
            state.commit()

    def new_size() -> None:
        for group in optimizer.param_groups:
            group["lr"] = options.lr * hvd.size()

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, step=0)
    state.register_reset_callbacks([new_size])
    train(state)


if __name__ == "__main__":
    main()
