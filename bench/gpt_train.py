"""A GPT with AdamW, for the case of large states: `python gpt_train.py MB [JOINING]`.

So many megabytes are the parameters'; the state is three times that, since AdamW keeps two more
numbers for each. With BENCH_DEVICE=cuda all members share the first GPU, and with
BENCH_BACKEND=nccl each says that it is a machine of its own: NCCL takes two ranks of one machine
on one GPU for a mistake.
"""

import math
import os
import sys
from typing import Any

import torch
from torch import Tensor, nn

import midflight as mf
from bench.model import GLOBAL_BATCH, SEED, STEPS_PER_EPOCH
from bench.record import Recorder

VOCABULARY, CONTEXT, HEAD = 8192, 128, 64
LAYERS, SMALL_LAYERS = 24, 2
SMALL = 100  # megabytes below which there are fewer layers


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for part in self.attention(self.before(x)).chunk(3, -1)
        )
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(seen.transpose(1, 2).flatten(2))
        after: Tensor = x + self.mlp(self.between(x))
        return after


class Gpt(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.blocks(self.tokens(tokens) + self.places(places)))
        return nn.functional.linear(x, self.tokens.weight)


def build(megabytes: int, device: str) -> Gpt:
    """The same in every process; a block has 12 parameters per square of the width."""
    layers = LAYERS if megabytes >= SMALL else SMALL_LAYERS
    wide = math.sqrt((megabytes << 18) / (12 * layers))
    width = HEAD * max(1, round((wide - VOCABULARY / (24 * layers)) / HEAD))
    torch.manual_seed(SEED)
    with torch.device(device):
        return Gpt(width, layers)


class Texts(torch.utils.data.Dataset[Tensor]):
    """A long data set of few texts, which stay in memory."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(SEED)
        self._texts = torch.randint(VOCABULARY, (32, CONTEXT), generator=generator)

    def __len__(self) -> int:
        return STEPS_PER_EPOCH * GLOBAL_BATCH

    def __getitem__(self, index: int) -> Tensor:
        return self._texts[index % 32]


def main(megabytes: int, joining: Any = "auto") -> None:
    device = os.environ.get("BENCH_DEVICE", "cpu")
    backend: Any = os.environ.get("BENCH_BACKEND", "gloo")
    if backend == "nccl":
        os.environ["NCCL_HOSTID"] = os.environ["MIDFLIGHT_MEMBER"]
        os.environ |= {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    model = build(megabytes, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    recorder, texts = Recorder.from_env(), Texts()
    with mf.join(model=model, optimizer=optimizer, joining=joining, backend=backend) as job:
        for batch in job.batches(texts, global_batch_size=GLOBAL_BATCH, epochs=1000):
            seat, tokens = batch.issued.seat, batch.data.to(device)
            logits = model(tokens)[:, :-1].flatten(0, 1)
            loss = nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
            if job.step(loss) and batch.weight:
                recorder.done(batch.step, seat.sharers or seat.size)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
