"""Which torch is taken, what is put in place of its own, and when a result counts as right."""

import os
import sys
from types import SimpleNamespace

import pytest

import whet
from whet.cli import main
from whet.store import open_store
from whet.targets.inductor import taking
from whet.targets.inductor.operation import LeftAlone, Operation, config_of, judged
from whet.targets.inductor.ptxas import torchs_ptxas, two_versions, use_one_ptxas
from whet.targets.inductor.taking import unknown_inside
from whet.testing.samples import a_trial, a_workload

torch = pytest.importorskip("torch")
select = pytest.importorskip("torch._inductor.select_algorithm")

Cache = select.AlgorithmSelectorCache


@pytest.fixture(autouse=True)
def afterwards():
    yield
    taking.give_inductor_back()


class TestTaking:
    def test_a_context_puts_everything_back(self):
        from torch._inductor import config
        from torch.compiler import config as compiler

        def there():
            inside = vars(Cache).get("lookup"), vars(Cache)["benchmark_choices"]
            pruned = config.max_autotune_prune_choices_based_on_shared_mem
            return *inside, pruned, compiler.cache_key_tag

        before = there()
        with whet.install(inductor=True):
            during = there()
        assert all(one != other for one, other in zip(before, during, strict=True))
        assert there() == before

    def test_twice_is_once(self):
        original = Cache.lookup
        with whet.install(inductor=True), whet.install(inductor=True):
            pass
        assert Cache.lookup is original

    def test_an_inner_context_leaves_it_to_the_outer_one(self):
        original = Cache.lookup
        with whet.install(inductor=True):
            with whet.install(inductor=True):
                pass
            assert Cache.lookup is not original

    def test_the_setting_is_the_default(self, monkeypatch):
        original = Cache.lookup
        with whet.install():
            assert Cache.lookup is original
        monkeypatch.setenv("WHET_INDUCTOR", "1")
        with whet.install():
            assert Cache.lookup is not original

    @pytest.mark.parametrize("version", ["2.8.0", "2.14.0", "3.0", "odd"])
    def test_a_torch_that_nobody_has_read_stays_as_it_is(self, version, monkeypatch, capsys):
        original = Cache.lookup
        monkeypatch.setattr(torch, "__version__", version)
        with whet.install(inductor=True):
            assert Cache.lookup is original
        assert f"torch {version} is not among those that were read" in unknown_inside()

    def test_so_does_one_that_asks_otherwise(self, monkeypatch):
        monkeypatch.setattr(Cache, "lookup", lambda self, choices, inputs, op, benchmark: {})
        assert "AlgorithmSelectorCache.lookup has other parameters" in unknown_inside()

    def test_other_sizes_than_the_tensors_have_are_inductors_affair(self):
        asked = []
        with whet.install(inductor=True):
            taken = taking._taken
            taken._stock_lookup = lambda *given, **named: asked.append(given) or {}
            Cache.lookup(None, ["a", "b"], "mm", "[]", None, hint_override=3)
        assert len(asked) == 1


class TestAssembler:
    @pytest.fixture
    def wheel(self, tmp_path, monkeypatch):
        found = tmp_path / "torch" / "bin" / "ptxas"
        found.parent.mkdir(parents=True)
        found.write_text("#!/bin/sh\n")
        found.chmod(0o755)
        monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
        monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
        return found

    def test_torchs_own_is_for_everybody(self, wheel, monkeypatch):
        assert use_one_ptxas() == str(wheel)
        assert os.environ["TRITON_PTXAS_PATH"] == str(wheel)
        monkeypatch.delenv("TRITON_PTXAS_PATH")

    def test_what_somebody_has_chosen_stays(self, wheel, monkeypatch):
        monkeypatch.setenv("TRITON_PTXAS_PATH", "/elsewhere/ptxas")
        assert use_one_ptxas() == ""
        assert os.environ["TRITON_PTXAS_PATH"] == "/elsewhere/ptxas"

    def test_two_versions_are_told_apart(self, wheel, tmp_path, monkeypatch):
        def says(file, version):
            file.write_text(
                f"#!/bin/sh\necho Cuda compilation tools, release {version}, V{version}\n"
            )
            file.chmod(0o755)

        triton = pytest.importorskip("triton")
        own = tmp_path / "ptxas"
        says(own, "12.8")
        says(wheel, "13.0")
        nvidia = SimpleNamespace(ptxas=SimpleNamespace(path=str(own)))
        monkeypatch.setattr(triton.knobs, "nvidia", nvidia)
        assert two_versions() == ("13.0", "12.8", str(wheel))
        says(own, "13.0")
        assert two_versions() is None
        says(own, "12.8")
        monkeypatch.setenv("TRITON_PTXAS_PATH", str(wheel))
        assert two_versions() is None

    def test_without_torch_there_is_none(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "torch")
        assert torchs_ptxas() is None
        assert two_versions() is None

    def test_one_that_cannot_run_is_none(self, wheel):
        wheel.chmod(0o644)
        assert torchs_ptxas() is None


class TestOperations:
    @pytest.fixture
    def extern(self):
        """A choice with nothing behind it."""
        made = object.__new__(select.ExternKernelCaller)
        made.name, made.choice = "addmm", SimpleNamespace(hash_key=lambda: "c0ffee")
        made.kwargs, made.has_out_variant = {}, True
        made.layout = SimpleNamespace(
            device=torch.device("cpu"), dtype=torch.float32, size=[8, 16], stride=[16, 1]
        )
        return made

    def test_sizes_have_the_names_that_people_give_them(self, extern):
        inputs = "[('cpu', 'torch.float32', 16, 0, 0), ('cpu', 'torch.float32', 8, 32, 32, 1, 0), "
        inputs += "('cpu', 'torch.float32', 32, 16, 1, 32, 4)]"
        key = Operation("addmm", inputs, [extern]).key
        assert (key["M"], key["N"], key["K"]) == (8, 16, 32)
        assert key["inputs"].endswith("float32[8, 32], float32[32, 16] by [1, 32] from 4")
        assert key["output"] == "float32[8, 16]"
        assert key["threads"] == torch.get_num_threads()

    def test_what_is_written_otherwise_is_left_alone(self, extern):
        with pytest.raises(LeftAlone, match="not written as expected"):
            _ = Operation("mm", "s0*2", [extern]).key

    def test_a_kind_of_choice_that_is_not_known_is_left_alone(self):
        class SubgraphChoiceCaller:
            name = "subgraph_1"

        with pytest.raises(LeftAlone, match="one of its choices is a SubgraphChoiceCaller"):
            config_of(SubgraphChoiceCaller())


def product(dtype, k, scale=1.0):
    chance = torch.Generator().manual_seed(k)
    a = torch.randn(64, k, generator=chance).to(dtype) * scale
    b = torch.randn(k, 48, generator=chance).to(dtype)
    return a, b


class TestResults:
    @pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
    @pytest.mark.parametrize("k", [16, 512, 8192])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_another_order_of_the_terms_is_right(self, dtype, k, scale):
        if dtype == torch.float16 and scale == 1e3:
            scale = 10.0  # its largest number is 65,504
        a, b = product(dtype, k, scale)
        order = torch.randperm(k, generator=torch.Generator().manual_seed(1))
        exact = (a.double() @ b.double()).to(dtype)
        parts = [
            x.float() @ y.float()
            for x, y in zip(a[:, order].split(128, 1), b[order].split(128), strict=True)
        ]
        kept = sum(one.to(dtype) for one in parts)  # as a product that is split along K does
        assert judged(kept, exact, k).ok

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("wrong", ["a term", "a row", "the last tile", "a bias", "nan"])
    def test_what_a_wrong_kernel_leaves_out_is_found(self, dtype, wrong):
        a, b = product(dtype, 256)
        exact = (a.double() @ b.double()).to(dtype)
        got = exact.clone()
        if wrong == "a term":
            got = (a[:, :-1].double() @ b[:-1].double()).to(dtype)
        elif wrong == "a row":
            got[-1] = 0
        elif wrong == "the last tile":
            got[32:, 32:] = 0
        elif wrong == "a bias":
            got = got + 1
        else:
            got[3, 3] = float("nan")
        verdict = judged(got, exact, 256)
        assert not verdict.ok
        assert "library's kernel" in verdict.message

    def test_whole_numbers_are_the_same(self):
        right = torch.arange(6).reshape(2, 3)
        assert judged(right.clone(), right, 8).ok
        assert judged(right + 1, right, 8).message == "6 of 6 elements differ"

    def test_another_shape_is_wrong(self):
        assert "got float32[2, 3]" in judged(torch.zeros(2, 3), torch.zeros(3, 2), 8).message


class TestCommands:
    """What a command says of an operation, which has no file."""

    def test_by_name(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("WHET_STORE", str(tmp_path / "store.db"))
        workload = a_workload(kernel="inductor.mm")
        with open_store(str(tmp_path / "store.db")) as store:
            store.put_workload(workload)
            store.append([a_trial(workload)])
        assert main(["tune", "inductor.mm"]) == 2
        assert "run the program with 'whet run --inductor'" in capsys.readouterr().err
