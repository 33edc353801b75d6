"""A loop that has no gradients and no batches: k-means, each member with its part of the points.

Midflight needs to know where a step ends (`job.check`) and what to carry to newcomers (anything
with `state_dict` and `load_state_dict`). Everything else is the script's own.
"""

import argparse

import torch

import midflight as mf


class Centres:
    def __init__(self, points: torch.Tensor, count: int) -> None:
        self.at = points[:count].clone()

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.at = state["at"]

    def sums(self, points: torch.Tensor) -> torch.Tensor:
        """For each centre: the sum of its points, how many there are, and their distances."""
        distances, nearest = torch.cdist(points, self.at).min(1)
        ones = torch.ones(len(points), 1, dtype=points.dtype)
        rows = torch.cat([points, ones, distances.unsqueeze(1)], 1)
        return torch.zeros(len(self.at), rows.shape[1], dtype=rows.dtype).index_add(
            0, nearest, rows
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    source = torch.Generator().manual_seed(0)
    clusters = 5 * torch.randn(6, 2, generator=source, dtype=torch.float64)
    noise = torch.randn(12_000, 2, generator=source, dtype=torch.float64)
    points = clusters.repeat(2_000, 1) + noise
    centres = Centres(points, count=6)
    with mf.join(centres=centres) as job:
        job.check()  # from here on, everything up to the next call is one step
        while job.step_number < options.steps:
            mine = points[job.rank :: job.size]
            try:
                sums = job.all_reduce(centres.sums(mine))
            except mf.WorldChanged:
                job.check()  # a member was lost: the same step again, with the others
                continue
            counts = sums[:, 2:3].clamp(min=1)
            centres.at = sums[:, :2] / counts
            job.check()
            if job.rank == 0 and job.step_number % 20 == 0:
                print(f"step {job.step_number}: mean distance {sums[:, 3].sum() / len(points):.4f}")


if __name__ == "__main__":
    main()
