"""`check="bitwise"` and `check="deterministic"`: which configs of a kernel may win.

The driver is a fake: what a launch would compute is computed here, in the order of a config's
blocks, on tensors of torch's in the host's memory.
"""
# ruff: noqa: N803 - parameters of kernels are written in capitals by custom

import warnings

import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl

import whet
from whet.core.errors import UsageError
from whet.measure.bench.bits import BITS, FREE_NS, ONLY_REAL, VARIES
from whet.measure.bench.protocol import DeviceRoom
from whet.targets.triton import checks
from whet.targets.triton.checks import BitsExamination, Traits, Written, tensor_hash
from whet.testing.fake_triton import fake_driver, told

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("warm_binaries")

N = 2048


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        acc += tl.load(x + offsets, mask=offsets < n, other=0.0)
    tl.store(out, tl.sum(acc))


@triton.jit
def total_by_atomics(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + offsets, mask=offsets < n, other=0.0)))


@triton.jit
def gathered(x, out, n, BLOCK: tl.constexpr):
    at = tl.load(x + tl.arange(0, BLOCK)).to(tl.int32)
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + at))


CONFIGS = ((128, 4), (256, 4), (128, 8), (512, 4))


def tuned(fn=total, configs=CONFIGS, fastest=(256, 4), **options):
    listed = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in configs]
    made = whet.autotune(configs=listed, key=["n"], **options)(fn)

    def time(config):
        return {fastest: 1000.0, (128, 8): 2000.0}.get(
            (config.kwargs["BLOCK"], config.num_warps), 3000.0
        )

    made.whet_timer = told(time)
    return made


def summed(x, block):
    """As the kernel adds: lane by lane, then the lanes."""
    lanes = torch.zeros(block)
    for part in x.view(-1, block):
        lanes += part
    result = torch.zeros(())
    for lane in lanes:
        result = result + lane
    return result


class Device:
    """Computes what a launch would; `wobble` adds the sum in another order every time."""

    def __init__(self, wobble=()):
        self.wobble = wobble
        self.launches = 0
        self.seen = []

    def launch(self, name, args):
        x, out, block = args[0], args[1], args[-1]
        self.launches += 1
        self.seen.append(x[0].item())
        order = x
        if block in self.wobble:
            order = x.roll(self.launches)
        value = summed(order, block)
        out[0] = out[0] + value if name == "total_by_atomics" else value


@pytest.fixture
def driver():
    with fake_driver() as fake:
        fake.device_ = Device()
        fake.on_launch = fake.device_.launch
        yield fake


def noise():
    return torch.rand(N, generator=torch.Generator().manual_seed(1))


def call(kernel, x=None, **options):
    x = torch.zeros(N) if x is None else x
    out = torch.full((8,), 7.0)
    kernel[(1,)](x, out, N, **options)
    config = kernel.best_config
    return (config.kwargs["BLOCK"], config.num_warps), x, out


def facts(cold):
    """The trials that were examined, by config."""
    trials = (trial for trial in cold.trials() if BITS in trial.facts)
    return {(t.config["BLOCK"], t.config["num_warps"]): t for t in trials}


@pytest.mark.slow
def test_only_configs_with_the_bits_of_the_first_may_win(driver, cold):
    """All of them add zeros to zero: that the order differs shows on made inputs only."""
    assert call(tuned())[0] == (256, 4)
    kernel = tuned(check="bitwise")
    assert call(kernel)[0] == (128, 8)
    [price] = [note for note in kernel.whet_result.notes if "check=bitwise" in note]
    assert "refused 2 configs" in price
    assert "2 times" in price
    trials = facts(cold)
    assert {n: str(t.status) for n, t in trials.items()} == {
        (128, 4): "outraced",
        (128, 8): "ok",
        (256, 4): "wrong_result",
        (512, 4): "wrong_result",
    }
    assert trials[256, 4].facts[FREE_NS] == 1000.0
    assert "output 'out'" in trials[256, 4].error
    assert trials[128, 8].facts[BITS] == trials[128, 4].facts[BITS]


@pytest.mark.medium
def test_arguments_are_what_they_were_and_autograd_saw_nothing(driver):
    x = torch.arange(N, dtype=torch.float32, requires_grad=True)
    squared = x * x  # which saves x
    before, version = x.detach().clone(), x._version
    _, _, out = call(tuned(check="bitwise"), x)
    assert torch.equal(x.detach(), before)
    assert x._version == version
    assert out[1:].tolist() == [7.0] * 7
    squared.sum().backward()


@pytest.mark.slow
def test_results_of_a_checked_kernel_are_its_own(driver, cold):
    assert call(tuned())[0] == (256, 4)
    assert call(tuned(check="bitwise"))[0] == (128, 8)
    assert call(tuned(mode="require"))[0] == (256, 4)
    assert call(tuned(check="bitwise", mode="require"))[0] == (128, 8)
    assert {str(w.key.get("whet.check")) for w in cold.workloads()} == {"None", "bitwise"}


@pytest.mark.medium
def test_a_later_run_compares_with_the_stored_reference(driver, cold):
    call(tuned(configs=CONFIGS[:1] + CONFIGS[2:3], check="bitwise"))
    before = driver.device_.launches
    picked, _, _ = call(tuned(check="bitwise"), torch.ones(N))
    assert picked == (128, 8)
    assert driver.device_.launches > before
    assert str(facts(cold)[256, 4].status) == "wrong_result"


@pytest.mark.medium
def test_a_reference_that_differs_from_itself_stays_and_is_said(driver, capfd):
    driver.device_.wobble = (128,)
    kernel = tuned(configs=CONFIGS[:2] + CONFIGS[3:], check="bitwise")
    picked, _, _ = call(kernel, noise())
    assert picked == (128, 4)
    assert "it stays" in capfd.readouterr().err


@pytest.mark.slow
def test_deterministic_refuses_what_differs_from_launch_to_launch(driver, cold):
    driver.device_.wobble = (256, 512)
    kernel = tuned(total_by_atomics, check="deterministic", restore_value=["out"])
    picked, _, _ = call(kernel, noise())
    assert picked == (128, 8)
    trials = facts(cold)
    assert VARIES in trials[256, 4].facts
    assert str(trials[128, 4].status) == "outraced"


@pytest.mark.medium
def test_atomics_on_zeros_are_shown_to_vary_by_made_inputs(driver, cold):
    driver.device_.wobble = (256,)
    kernel = tuned(total_by_atomics, check="deterministic", restore_value=["out"])
    assert call(kernel)[0] == (128, 8)
    assert "random inputs" in facts(cold)[256, 4].error


@pytest.mark.slow
def test_a_kernel_of_which_every_config_varies_is_refused_and_still_runs(driver, cold):
    driver.device_.wobble = (128, 256, 512)
    kernel = tuned(total_by_atomics, check="deterministic", restore_value=["out"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        picked, _, _ = call(kernel, noise())
    assert picked == (128, 4)
    assert any("launch to launch" in str(one.message) for one in said)
    assert {str(t.status) for t in facts(cold).values()} == {"wrong_result"}


@pytest.mark.medium
def test_numbers_that_become_addresses_are_left_alone(driver, cold, capfd):
    driver.on_launch = lambda name, args: driver.device_.seen.append(float(args[0][0]))
    kernel = tuned(gathered, check="bitwise")
    call(kernel, torch.full((N,), 3.0))
    assert set(driver.device_.seen) == {3.0}
    assert all(ONLY_REAL in t.facts for t in facts(cold).values())
    assert "real inputs" in capfd.readouterr().err


@pytest.mark.medium
def test_without_a_check_nothing_is_hashed(driver, monkeypatch):
    hashed = []
    monkeypatch.setattr(checks, "tensor_hash", lambda tensor: hashed.append(tensor) or "")
    call(tuned())
    call(tuned(check="agree"))
    assert hashed == []
    call(tuned(check="bitwise"))
    assert hashed


@pytest.mark.medium
def test_a_policy_asks_for_it_in_a_library(driver, monkeypatch, tmp_path):
    path = tmp_path / "whet.toml"
    path.write_text('[[kernel]]\nmatch = "total"\ncheck = "bitwise"\n')
    monkeypatch.setenv("WHET_POLICY", str(path))
    assert call(tuned())[0] == (128, 8)
    path.write_text('[[kernel]]\nmatch = "total"\ncheck = "bits"\n')
    with pytest.raises(UsageError, match='"bitwise", "deterministic" or "none"'):
        call(tuned())


def test_a_wrong_check_lists_the_right_ones():
    with pytest.raises(UsageError, match='"agree", "bitwise", "deterministic" or a reference'):
        tuned(check="bits")


def nans(*payloads):
    return torch.tensor(payloads, dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ([0.0, 1.0], [-0.0, 1.0]),
        ([0.0, 0.0], [-0.0, -0.0]),
        ([1.0, 2.0], [2.0, 1.0]),
        ([1.0], [1.0000001]),
        (nans(0x7FC00000, 0x7FC00001), nans(0x7FC00000, 0x7FC00002)),
    ],
)
def test_every_bit_and_place_counts_in_a_hash(one, two):
    one, two = torch.as_tensor(one), torch.as_tensor(two)
    assert tensor_hash(one) == tensor_hash(one.clone())
    assert tensor_hash(one) != tensor_hash(two)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float64", "complex64"])
@pytest.mark.parametrize("size", [0, 1, 3, 4097])
def test_tensors_of_any_dtype_and_size_have_a_hash(dtype, size):
    noise = torch.Generator().manual_seed(0)
    values = torch.rand(size, generator=noise).mul(100).to(getattr(torch, dtype))
    assert tensor_hash(values) == tensor_hash(values.clone())
    if size > 1 and dtype != "bool":
        changed = values.clone()
        changed[-1] = changed[-1] + 1
        assert tensor_hash(values) != tensor_hash(changed)


def test_what_lies_between_rows_is_left_out():
    whole = torch.arange(32.0).view(4, 8)
    other = whole.clone()
    other[:, 5:] = -1.0
    assert tensor_hash(whole[:, :5]) == tensor_hash(other[:, :5])


@pytest.mark.medium
def test_two_million_elements_and_more_are_hashed_in_parts():
    values = torch.arange(5_000_000, dtype=torch.int32)
    swapped = values.clone()
    swapped[0], swapped[1 << 21] = values[1 << 21], values[0]
    assert tensor_hash(values) != tensor_hash(swapped)


def examined(launch, named, written, read):
    room = DeviceRoom()
    args = Written(named, written, read, lambda tensor: tensor.untyped_storage().data_ptr())
    return BitsExamination(room).facts(args, Traits(True, True), launch, lambda: None)


def test_what_is_updated_in_place_begins_anew_with_every_launch():
    x, y = torch.arange(8.0), torch.ones(8)
    found = examined(lambda: x.add_(y), {"x": x, "y": y}, ["x"], ["x", "y"])
    assert VARIES not in found
    assert [one[:2] for one in found[BITS]] == [("real", "x"), ("even", "x"), ("wide", "x")]
    assert x.tolist() == list(range(8))
    assert y.tolist() == [1.0] * 8


def test_an_output_that_is_an_input_by_another_name_begins_anew_too():
    x = torch.arange(8.0)
    found = examined(lambda: x.mul_(3), {"x": x, "out": x.view(8)}, ["out"], ["x"])
    assert VARIES not in found
    assert x.tolist() == list(range(8))


def test_narrow_and_expanded_inputs_are_filled_or_left_alone():
    narrow = torch.ones(8).to(torch.float8_e4m3fn)
    expanded = torch.ones(1).expand(8)
    out, seen = torch.zeros(8), []

    def launch():
        seen.append((narrow.float().tolist(), expanded.tolist()))
        out.copy_(narrow.float() + expanded)

    named = {"narrow": narrow, "expanded": expanded, "out": out}
    examined(launch, named, ["out"], ["narrow", "expanded"])
    assert len({tuple(one) for one, _ in seen}) == 3
    assert all(other == [1.0] * 8 for _, other in seen)
    assert narrow.float().tolist() == [1.0] * 8


def test_tensors_behind_descriptors_and_in_tuples_are_found():
    class Descriptor:
        base, block_shape = torch.zeros(4), [2, 2]

    one, two = torch.zeros(2), torch.zeros(3)
    args = Written({"d": Descriptor(), "pair": (one, 5, two), "n": 7}, ["d", "pair", "n"], [], id)
    assert list(args.outputs()) == ["d", "pair.0", "pair.2"]


def test_code_tells_what_may_be_done_with_a_kernel():
    assert Traits.of("tt.load tt.store") == Traits(True, False)
    assert Traits.of("tt.atomic_rmw fadd") == Traits(True, True)
    assert not Traits.of("%1 = arith.fptosi %0").made_inputs
    assert not Traits.of(None).made_inputs
