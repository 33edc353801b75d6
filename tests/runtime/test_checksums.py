"""A checksum has to tell states apart, and must not see a difference where there is none."""

from collections.abc import Iterator, Sequence

import pytest
import torch

from midflight.runtime.state import checksums
from midflight.runtime.state.channel import bytes_moved
from midflight.runtime.state.checksums import BLOCK, LARGE, checksum

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.complex64)


@pytest.mark.parametrize("count", [1, 7, 1000, LARGE + 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_single_bit_anywhere_shows(count: int, dtype: torch.dtype) -> None:
    tensor = torch.ones(count, dtype=dtype)
    before = checksum([tensor])
    assert checksum([tensor.clone()]) == before
    assert 0 <= before < 2**63
    for place in {0, count // 2, count - 1}:
        other = tensor.clone()
        bits = other.view(torch.uint8)
        bits[place * tensor.element_size()] ^= 1
        assert checksum([other]) != before


@pytest.mark.parametrize("count", [1000, LARGE])
def test_values_that_have_changed_places_show(count: int) -> None:
    tensor = torch.arange(count, dtype=torch.float64)
    other = tensor.clone()
    other[3], other[count - 3] = tensor[count - 3], tensor[3]
    assert checksum([other]) != checksum([tensor])


def test_equal_tensors_in_another_order_show() -> None:
    for count in (10, LARGE):
        one, two = torch.zeros(count), torch.ones(count)
        assert checksum([one, two]) != checksum([two, one])


def test_how_the_memory_lies_does_not_matter() -> None:
    tensor = torch.rand(4, 64, 32, 32)
    assert checksum([tensor]) == checksum([tensor.to(memory_format=torch.channels_last)])
    wide = torch.zeros(LARGE + 1, dtype=torch.float32)
    assert checksum([wide[1:]]) == checksum([wide[1:].clone()])  # not at a multiple of 8 bytes


def test_the_number_of_threads_does_not_matter() -> None:
    tensor, threads = torch.rand(3_000_000), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = checksum([tensor])
        torch.set_num_threads(2)
        assert checksum([tensor]) == alone
    finally:
        torch.set_num_threads(threads)


def test_empty_and_single_values_are_no_exception() -> None:
    assert checksum([]) == checksum([torch.empty(0)])
    assert checksum([torch.tensor(1.0)]) != checksum([torch.tensor(2.0)])
    assert checksum([torch.tensor(1.0, requires_grad=True)]) == checksum([torch.tensor(1.0)])


class Watched(Sequence[torch.Tensor]):
    """Notes, whenever the next tensor is asked for, how much progress has been told."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.tensors = tensors
        self.told: list[int] = []

    def __getitem__(self, place: int) -> torch.Tensor:  # type: ignore[override]
        return self.tensors[place]

    def __len__(self) -> int:
        return len(self.tensors)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for tensor in self.tensors:
            self.told.append(bytes_moved())
            yield tensor


def test_progress_is_told_as_long_as_it_takes() -> None:
    """Or a member that sums up a large state would look like one that is stuck."""
    before, tensors = bytes_moved(), Watched(*(torch.rand(LARGE) for _ in range(3)))
    checksum(tensors)
    size = tensors[0].nbytes
    assert [told - before for told in tensors.told] == [0, size, 2 * size]
    assert bytes_moved() - before == 3 * size


def test_a_large_tensor_is_summed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.rand(LARGE + 5)
    whole = checksum([tensor])
    monkeypatch.setattr(checksums, "PIECE", 3 * BLOCK * 8)
    assert checksum([tensor]) == whole
