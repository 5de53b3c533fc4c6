"""Plain calls are measured in a process that imports neither torch nor Triton.

The driver's library is one that writes calls down, and takes a microsecond for a block.
"""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import ctypes
import json
import os
import re
import struct
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import isolated_parts as parts
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import bare_parts
import torch
import triton
import triton.language as tl

import whet
from whet.core.config import Config
from whet.core.errors import ConfigFailure
from whet.core.status import Status
from whet.measure.bench.executor import MakeExecutor
from whet.measure.gpu.driver import driver_on
from whet.targets.triton.call import Call
from whet.targets.triton.isolated import bench as benches
from whet.targets.triton.isolated import sending
from whet.targets.triton.isolated.bare import BareIpcCall, BareLoader, bare_timer, copied
from whet.targets.triton.isolated.ipc_arguments import ALIGNMENT, Block, Packer, Wrapped
from whet.targets.triton.isolated.sending import launch_of
from whet.testing import fake_cuda
from whet.testing.fake_triton import fake_driver
from whet.workers.session import Session

pytestmark = pytest.mark.skipif(
    fake_cuda.header_folder() is None, reason="needs Triton's cuda.h and a C compiler"
)

N = 8
HEAVY = ("torch", "triton", "numpy", "scipy", "rich", "sqlite3", "asyncio")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return fake_cuda.built(tmp_path_factory.mktemp("fake-cuda"))


@pytest.fixture(autouse=True)
def log(library, monkeypatch, tmp_path):
    path = tmp_path / "log"
    monkeypatch.setenv("FAKE_CUDA_LOG", str(path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("ISOLATED_DIARY", str(tmp_path / "diary"))
    monkeypatch.setattr("whet.engine.log._said", set())
    return lambda: [line.split() for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def driver():
    with fake_driver() as fake:
        fake.on_launch = lambda name, args: parts.launched(fake, name, args)
        yield fake


@pytest.fixture
def all_plain(monkeypatch):
    """Tensors of the host stand for the device's."""
    monkeypatch.setattr(benches, "is_plain", lambda call, configs, ipc_call: True)


@pytest.fixture
def opened(monkeypatch):
    """Every bench that is opened, with what it said of itself in the end."""
    seen = []
    close = benches.IsolatedBench.close

    def noted(self):
        seen.append((self.plain, self.set_up))
        close(self)

    monkeypatch.setattr(benches.IsolatedBench, "close", noted)
    return seen


@triton.jit
def mixed(x, nothing, n, one, many, scale, flag, y, BLOCK: tl.constexpr, LABEL: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n) * scale + one + many
    if nothing is not None:
        value += tl.load(nothing + offsets, mask=offsets < n)
    if flag:
        value += 1
    tl.store(y + offsets, value, mask=offsets < n)


def tuned(kernel=mixed, key=("n",), **options):
    options.setdefault("configs", [triton.Config({"BLOCK": 16})])
    return whet.autotune(key=list(key), isolate=True, **options)(kernel)


def launched(*args, configs=None, **keywords):
    """The only config of a call: its launch, and the packer that numbers its tensors."""
    tuner = tuned(configs=configs) if configs else tuned()
    call = Call(tuner, args, {"grid": (4, 2), **keywords})
    packer = Packer()
    for value in args:
        packer.add(value)
    return launch_of(call, tuner.configs[0], packer), packer


def arguments(scale=0.5, one=1):
    base = torch.arange(64.0)
    return base[:N], None, N, one, 1 << 40, scale, True, base[N + 1 : 2 * N]


def declared_bytes(launch):
    """Of each parameter of the compiled kernel, as its PTX declares them."""
    text = next(Path(p) for name, p in launch.files.items() if name.endswith(".ptx")).read_text()
    head = text[text.index(".entry") : text.index(")", text.index(".entry"))]
    return [int(bits) // 8 for bits in re.findall(r"\.param \.[a-z](\d+)", head)]


@pytest.mark.medium
def test_parameters_are_those_the_binary_declares(driver):
    launch, _ = launched(*arguments(), LABEL="text")
    bare = sending.bare_launch(launch)
    sizes = declared_bytes(launch)
    # `nothing`, `one` and the constants are compiled in; two addresses of scratch come last.
    assert sizes == [8, 4, 8, 4, 1, 8, 8, 8]
    assert bare.parameters == (
        0,
        struct.pack("<i", N),
        struct.pack("<q", 1 << 40),
        struct.pack("<f", 0.5),
        b"\x01",
        1,
        b"",
        b"",
    )
    assert [len(one) for one in bare.parameters[1:5]] == sizes[1:5]


@pytest.mark.medium
def test_what_is_not_specialised_is_passed(driver):
    launch, _ = launched(*arguments(one=16), LABEL="text")
    assert len(sending.bare_launch(launch).parameters) == len(declared_bytes(launch)) == 9


@pytest.mark.medium
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("i1", True, b"\x01"),
        ("i8", -1, b"\xff"),
        ("u16", 65535, b"\xff\xff"),
        ("i64", -2, b"\xfe" + b"\xff" * 7),
        ("fp16", 1.5, struct.pack("<e", 1.5)),
        ("bf16", 3.14159, b"\x49\x40"),
        ("fp64", 2, struct.pack("<d", 2.0)),
    ],
)
def test_numbers_are_packed_as_triton_does(kind, value, expected):
    assert sending._parameter(kind, value) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [("i32", 1.5), ("i8", 300), ("*fp32", 4096), ("tensordesc<fp16[64]>", 1), (("i32",), (1,))],
)
def test_what_is_no_plain_parameter_is_left_to_triton(kind, value):
    with pytest.raises(sending.NotPlain):
        sending._parameter(kind, value)


@pytest.mark.medium
@pytest.mark.parametrize(
    "special",
    [
        {"num_ctas": 2},
        {"launch_pdl": True},
        {"launch_cooperative_grid": True},
        {"global_scratch_size": 128},
        {"profile_scratch_size": 128},
        {"shared": 300 << 10},
    ],
)
def test_what_only_triton_can_launch_is_left_to_it(driver, special, tmp_path):
    launch, _ = launched(*arguments(), LABEL="text")
    name, path = next((n, p) for n, p in launch.files.items() if n.endswith(".json"))
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps({**json.loads(Path(path).read_text()), **special}))
    sending.bare_launch(launch)
    with pytest.raises(sending.NotPlain):
        sending.bare_launch(replace(launch, files={**launch.files, name: str(changed)}))


@pytest.fixture
def loader(driver, library):
    """Loads launches of this process, in this process."""
    with fake_cuda.in_place(library):

        def made(packer):
            ipc_arguments = packer.ipc_arguments()
            places = tuple((view.block, view.offset) for view in ipc_arguments.views)
            return BareLoader(BareIpcCall(0, ipc_arguments.blocks, places))

        yield made


@pytest.fixture
def load(loader):
    """The config of a call, loaded, with something changed in its launch."""

    def load(args=None, **change):
        launch, packer = launched(*(args or arguments()), LABEL="text")
        return loader(packer).load(Config(BLOCK=16), replace(sending.bare_launch(launch), **change))

    return load


@pytest.mark.medium
def test_a_launch_gets_addresses_of_aligned_copies(load, log, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_PARAMETERS", "8")
    args = arguments()
    load(args).repeat(2)
    calls = [line[2:] for line in log() if line[1] == "cuLaunchKernel"]
    assert len(calls) == 2
    assert calls[0][:4] == ["mixed", "4,2,1", "128", "0"]
    x, *numbers, y = (int(word, 16) for word in calls[0][4:10])
    assert numbers == [N, 1 << 40, struct.unpack("<I", struct.pack("<f", 0.5))[0], 1]
    assert ctypes.string_at(x, 4 * N) == args[0].numpy().tobytes()
    assert y - x == 4 * (N + 1)
    assert [address % 512 for address in (x, y)] == [t.data_ptr() % 512 for t in (args[0], args[7])]


def test_memory_that_the_driver_shares_is_copied(driver, library):
    source = torch.arange(256, dtype=torch.uint8)
    handle = struct.pack("<Qi", source.data_ptr(), os.getpid()).ljust(64, b"\0")
    block = Block(size=100, lead=24, device="cuda:0", handle=handle, offset=50)
    with fake_cuda.in_place(library):
        (start,) = copied(driver_on(0), [block])
    assert ctypes.string_at(start, 100) == bytes(range(50, 150))
    assert start % ALIGNMENT == 24


def test_facts_are_those_that_triton_reads(load):
    assert load().facts == {"registers": 40, "spills": 6, "shared_bytes": 0}


def test_an_empty_grid_launches_nothing(load, log):
    load(grid=(0, 1, 1)).check()
    assert [line for line in log() if line[1] == "cuLaunchKernel"] == []


@pytest.mark.parametrize(("shared", "asked"), [(48 << 10, False), (100 << 10, True)])
def test_much_shared_memory_is_asked_for(load, log, shared, asked):
    load(shared_bytes=shared)
    assert any(line[1] == "cuFuncSetAttribute" for line in log()) is asked


@pytest.mark.parametrize(
    ("change", "what"),
    [({"shared_bytes": 1 << 20}, "shared memory"), ({"threads": 2048}, "threads")],
)
def test_what_the_device_lacks_is_refused_in_tritons_words(load, change, what):
    with pytest.raises(ConfigFailure, match=f"out of resource: {what}") as caught:
        load(**change)
    assert caught.value.status is Status.RESOURCES


def copying(*blocks, **options):
    """In a closure: no other process can import it. A larger BLOCK has a smaller grid."""

    @triton.jit
    def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)

    options.setdefault("configs", [triton.Config({"BLOCK": block}) for block in blocks])
    kernel = tuned(copy, **options)
    kernel.whet_timer = bare_parts.like_cuda
    return kernel


def called(kernel):
    x, y = torch.arange(4096.0), torch.zeros(4096)
    kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, 4096)
    return x, y


def called_quietly(kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return called(kernel)


def elsewhere(log):
    return [line for line in log() if int(line[0]) != os.getpid()]


@pytest.mark.medium
def test_a_plain_call_is_tuned_without_torch(driver, cold, all_plain, opened, log):
    kernel = copying(512, 1024, 2048)
    x, y = called_quietly(kernel)
    assert [is_plain for is_plain, _ in opened] == [True]
    assert torch.equal(x, y)
    assert kernel.best_config.kwargs == {"BLOCK": 2048}
    assert cold.measured() == {512, 1024, 2048}
    assert {line[2] for line in elsewhere(log) if line[1] == "cuLaunchKernel"} == {"copy"}
    assert {trial.facts["registers"] for trial in cold.trials()} == {40}


@pytest.mark.medium
def test_the_process_says_where_its_start_went(driver, all_plain, opened):
    called(copying(512, 1024))
    assert set(opened[0][1]) == {"start", "cuInit", "context", "copy", "kernels", "nvml"}


@pytest.mark.slow
def test_an_illegal_access_ends_its_process_and_fails_alone(
    driver, cold, all_plain, opened, log, monkeypatch
):
    monkeypatch.setenv("FAKE_CUDA_FAIL", f"copy@{4096 // 1024}")
    called(copying(512, 1024, 2048))
    assert cold.statuses()[1024] == Status.RUN_ERROR.value
    assert cold.measured() == {512, 2048}
    assert opened[-1][0]
    assert len({line[0] for line in elsewhere(log)}) > 1


@pytest.mark.slow
def test_a_config_that_is_not_plain_changes_the_process_quietly(
    driver, cold, all_plain, opened, monkeypatch
):
    def refuses_one(launch):
        if launch.kwargs["BLOCK"] == 1024:
            raise sending.NotPlain("clusters")
        return sending.bare_launch(launch)

    monkeypatch.setattr(benches, "bare_launch", refuses_one)
    kernel = copying(512, 1024, 2048)
    called_quietly(kernel)
    assert [is_plain for is_plain, _ in opened] == [False]
    assert cold.measured() == {512, 1024, 2048}
    assert any(entry["pid"] != os.getpid() for entry in parts.entries())


@pytest.mark.slow
def test_memory_that_the_driver_does_not_share_goes_through_the_host(
    driver, cold, all_plain, opened, monkeypatch
):
    def shared(call, configs, packer, through_host, elsewhere):
        ipc_call = sending.ipc_call_of(call, configs, packer, through_host)
        if through_host:
            return ipc_call
        blocks = tuple(replace(b, handle=bytes(64), path="") for b in ipc_call.ipc_arguments.blocks)
        return replace(ipc_call, ipc_arguments=replace(ipc_call.ipc_arguments, blocks=blocks))

    monkeypatch.setattr(benches, "ipc_call_of", shared)
    called_quietly(copying(512, 1024))
    assert [is_plain for is_plain, _ in opened] == [True]
    assert cold.measured() == {512, 1024}


@pytest.mark.slow
def test_a_driver_that_cannot_be_used_changes_the_process_quietly(
    driver, cold, all_plain, opened, monkeypatch
):
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuInit")
    called_quietly(copying(512, 1024))
    assert [is_plain for is_plain, _ in opened] == [False]
    assert cold.measured() == {512, 1024}


@pytest.mark.slow
def test_nothing_heavy_is_imported(driver):
    packer = Packer()
    packer.add(torch.zeros(N))
    ipc_arguments = packer.ipc_arguments()
    ipc_call = BareIpcCall(0, ipc_arguments.blocks, ((0, 0),))
    make = MakeExecutor(
        partial(BareLoader, ipc_call), partial(bare_timer, 0, "cold", None), False, 16
    )
    with Session(bare_parts.Probe(make)) as session:
        imported = session.call("imported").value
    assert [name for name in HEAVY if name in imported] == []
    assert "whet.engine" not in imported


def made(check=None, **options):
    """A call with a timer of its own, and what is sent of it."""
    kernel = copying(512, **options)
    del kernel.whet_timer
    call = Call(kernel, (torch.zeros(N), torch.zeros(N), N), {"grid": (1,)}, check)
    return call, sending.ipc_call_of(call, kernel.configs, Packer(), False)


@pytest.fixture
def compiler(library):
    """The driver's, in this process."""
    with fake_cuda.in_place(library):
        yield


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"use_cuda_graph": True}, False),
        ({"reset_to_zero": ["y_ptr"]}, False),
        ({"restore_value": ["y_ptr"]}, False),
        ({"pre_hook": parts.shift}, False),
        ({"check": "agree"}, False),
        ({"configs": [triton.Config({"BLOCK": 512}, pre_hook=parts.shift)]}, False),
        ({"configs": [triton.Config({"BLOCK": 512}, num_ctas=2)]}, False),
    ],
)
def test_a_call_is_plain_where_nothing_is_around_its_launches(driver, compiler, options, expected):
    call, ipc_call = made(**options)
    blocks = tuple(replace(block, device="cuda:0") for block in ipc_call.ipc_arguments.blocks)
    ipc_call = replace(ipc_call, ipc_arguments=replace(ipc_call.ipc_arguments, blocks=blocks))
    assert sending.is_plain(call, call.tuner.configs, ipc_call) is expected


def test_tensors_of_the_host_descriptors_and_tuples_are_not_plain(driver, compiler):
    call, ipc_call = made()
    assert not sending.is_plain(call, call.tuner.configs, ipc_call)
    empty = replace(ipc_call, ipc_arguments=replace(ipc_call.ipc_arguments, blocks=()))
    assert sending.is_plain(call, call.tuner.configs, empty)
    for odd in ((1, 2), Wrapped(object, ipc_call.args[0])):
        assert not sending.is_plain(call, call.tuner.configs, replace(empty, args=(odd,)))


def test_no_call_is_plain_where_the_driver_may_not_compile(driver, library, monkeypatch):
    """The process that measures plain calls has nothing but the driver to make its own kernels."""
    call, ipc_call = made()
    empty = replace(ipc_call, ipc_arguments=replace(ipc_call.ipc_arguments, blocks=()))
    for forbidden in ("0", "1"):
        monkeypatch.setenv("CUDA_DISABLE_PTX_JIT", forbidden)
        with fake_cuda.in_place(library):
            assert sending.is_plain(call, call.tuner.configs, empty) is (forbidden == "0")
