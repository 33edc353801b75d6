"""A synthetic benchmark as users of Elastic Horovod write it: random images, speed per worker.

Nothing in it knows Midflight. It counts its work in three nested numbers that live in the state, so
that a change of the workers goes on in the middle of an iteration and repeats nothing.
"""

import argparse
import time

import horovod.torch as hvd
import torch


def model_of(width: int) -> torch.nn.Module:
    """Small enough for a laptop, and with a few layers to fuse."""
    conv = torch.nn.Conv2d
    return torch.nn.Sequential(
        *(conv(3, width, 3, stride=2), torch.nn.BatchNorm2d(width), torch.nn.ReLU()),
        *(conv(width, 2 * width, 3, stride=2), torch.nn.BatchNorm2d(2 * width), torch.nn.ReLU()),
        *(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(2 * width, 100)),
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--num-warmup-batches", type=int, default=10)
    parser.add_argument("--num-batches-per-iter", type=int, default=10)
    parser.add_argument("--num-iters", type=int, default=10)
    parser.add_argument("--num-batches-per-commit", type=int, default=1)
    parser.add_argument("--fp16-allreduce", action="store_true")
    parser.add_argument("--no-cuda", action="store_true")
    return parser.parse_args()


def say(line: str) -> None:
    if hvd.rank() == 0:
        print(line, flush=True)


def one_batch(state: hvd.elastic.TorchState, images: torch.Tensor, labels: torch.Tensor) -> None:
    state.optimizer.zero_grad()
    torch.nn.functional.cross_entropy(state.model(images), labels).backward()
    state.optimizer.step()


@hvd.elastic.run
def benchmark(
    state: hvd.elastic.TorchState, options: argparse.Namespace, data: tuple[torch.Tensor, ...]
) -> None:
    say(f"Number of workers: {hvd.size()}")
    while state.warm < options.num_warmup_batches:
        one_batch(state, *data)
        state.warm += 1
        state.commit()
    while state.iteration < options.num_iters:
        began, before = time.monotonic(), state.batch
        while state.batch < options.num_batches_per_iter:
            one_batch(state, *data)
            state.batch += 1
            if state.batch % options.num_batches_per_commit == 0:
                state.commit()
        speed = options.batch_size * (state.batch - before) / (time.monotonic() - began)
        say(f"Iter #{state.iteration}: {speed:.1f} img/sec per GPU")
        state.batch, state.iteration = 0, state.iteration + 1
        state.commit()


def main() -> None:
    options = read_options()
    hvd.init()
    cuda = torch.cuda.is_available() and not options.no_cuda
    device = torch.device("cuda", hvd.local_rank()) if cuda else torch.device("cpu")
    torch.set_num_threads(1)
    model = model_of(options.width).to(device)
    rate = 0.01
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=rate * hvd.size()),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
    )
    images = torch.randn(options.batch_size, 3, 32, 32, device=device)
    labels = torch.randint(100, (options.batch_size,), device=device)
    state = hvd.elastic.TorchState(model, optimizer, iteration=0, batch=0, warm=0)

    def new_size() -> None:
        for group in state.optimizer.param_groups:
            group["lr"] = rate * hvd.size()

    state.register_reset_callbacks([new_size])
    benchmark(state, options, (images, labels))
    say(f"Done: {state.iteration} iterations, at the end with {hvd.size()} workers")


if __name__ == "__main__":
    main()
