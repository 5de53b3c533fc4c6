"""Arguments on their way into another process."""

import os
import pickle
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from whet.targets.triton.isolated import ipc_arguments as ipc_module
from whet.targets.triton.isolated.ipc_arguments import (
    ALIGNMENT,
    CannotIsolate,
    Packer,
    Unpacker,
)


@pytest.fixture
def packer():
    with_files = Packer()
    yield with_files
    with_files.close()


def there_and_back(packer, *values):
    """As another process sees them."""
    encoded = packer.add(values)
    sent, unpacked = pickle.loads(pickle.dumps((packer.ipc_arguments(), encoded)))
    return Unpacker(sent).decoded(unpacked)


def test_numbers_dtypes_and_tuples_are_what_they_were(packer):
    values = (3, 2.5, None, True, torch.float16, (1, (2, None)))
    assert there_and_back(packer, *values) == values


def test_a_tensor_is_a_copy(packer):
    x = torch.arange(6.0)
    (copied,) = there_and_back(packer, x)
    copied += 1
    assert torch.equal(x, torch.arange(6.0))
    assert torch.equal(copied, x + 1)


def test_views_of_one_storage_stay_so(packer):
    x = torch.arange(12.0).reshape(3, 4)
    whole, row, column, again = there_and_back(packer, x, x[1], x[:, 2], x)
    assert again is whole
    assert row.stride() == (1,)
    assert column.stride() == (4,)
    whole.fill_(7)
    assert (row.tolist(), column.tolist()) == ([7.0] * 4, [7.0] * 3)


def test_views_of_several_types_share_their_bytes(packer):
    x = torch.arange(4, dtype=torch.int32)
    numbers, raw = there_and_back(packer, x, x.view(torch.uint8))
    raw.zero_()
    assert numbers.tolist() == [0] * 4


def test_of_a_large_storage_only_what_is_used_is_copied(packer, monkeypatch):
    monkeypatch.setattr(ipc_module, "WHOLE_BYTES", 100)
    x = torch.arange(1000, dtype=torch.int32)
    packer.add((x[100:200], x[150:300:3]))
    (block,) = packer.ipc_arguments().blocks
    assert block.size == 4 * (298 - 100)
    monkeypatch.undo()  # a small storage goes whole
    assert packer.ipc_arguments().blocks[0].size == 4000


@pytest.mark.parametrize("start", [0, 1, 3, 4, 64])
def test_a_copy_is_aligned_as_the_original(packer, monkeypatch, start):
    monkeypatch.setattr(ipc_module, "WHOLE_BYTES", 0)
    x = torch.arange(1000, dtype=torch.int32)[start:]
    (copied,) = there_and_back(packer, x)
    assert torch.equal(copied, x)
    assert copied.data_ptr() % ALIGNMENT == x.data_ptr() % ALIGNMENT


def test_what_holds_nothing_arrives(packer):
    empty, scalar = there_and_back(packer, torch.empty(0, 5), torch.tensor(3.0))
    assert empty.shape == (0, 5)
    assert scalar.item() == 3.0


def test_descriptors_and_other_dtypes_are_put_around_the_copy(packer):
    x = torch.zeros(64, 64)
    descriptor = TensorDescriptor.from_tensor(x, [16, 16])
    tensor, described, wrapped = there_and_back(packer, x, descriptor, TensorWrapper(x, torch.int8))
    assert described.base is tensor
    assert described.base is not x
    assert (list(described.shape), described.block_shape) == ([64, 64], [16, 16])
    assert (wrapped.base is tensor, wrapped.dtype) == (True, torch.int8)


def test_it_can_be_unpacked_again_and_again(packer):
    encoded = packer.add(torch.arange(3.0))
    sent = packer.ipc_arguments()
    first, second = (Unpacker(sent).decoded(encoded) for _ in range(2))
    first.zero_()
    assert second.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.slow
def test_another_process_reads_what_this_one_keeps(packer):
    encoded = packer.add(torch.arange(3.0))
    script = (
        "import pickle, sys; from whet.targets.triton.isolated.ipc_arguments import Unpacker; "
        "sent, encoded = pickle.load(sys.stdin.buffer); "
        "print(Unpacker(sent).decoded(encoded).tolist())"
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps((packer.ipc_arguments(), encoded)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert told.stdout.decode().strip() == "[0.0, 1.0, 2.0]"


def test_closing_leaves_no_file_open(packer):
    before = len(os.listdir("/proc/self/fd"))
    packer.add((torch.zeros(3), torch.zeros(4)))
    packer.ipc_arguments()
    packer.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (torch.eye(3).to_sparse(), "not a plain torch tensor that can be copied"),
        (lambda: None, "an argument of type function cannot be sent"),
    ],
)
def test_what_cannot_be_sent_is_refused(packer, value, why):
    with pytest.raises(CannotIsolate, match=why):
        packer.add(value)
