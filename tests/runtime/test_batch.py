"""What a batch is to a script, beside the batches of its parts."""

import pytest
import torch

import midflight as mf
from midflight.errors import DataError


def test_a_batch_of_dicts_is_keyword_arguments_and_others_say_why_they_are_not() -> None:
    with mf.join(ddp=False) as job:
        data = [{"x": torch.ones(1), "y": torch.zeros(1)}] * 2
        batch = next(job.batches(data, global_batch_size=2, epochs=1))
        assert {**batch}.keys() == {"x", "y"} and dict(**batch)["x"].tolist() == [[1.0], [1.0]]
    with mf.join(ddp=False) as job:
        batch = next(job.batches([torch.ones(1)] * 2, global_batch_size=2, epochs=1))
        with pytest.raises(DataError, match="samples that are dicts"):
            dict(**batch)
