"""The results that ship were measured with the kernels that ship: their fingerprints are the same.

A kernel's fingerprint follows from its source alone, in every version of Python and Triton, so one
that is computed in another way than before would lose every stored result.
"""

import importlib
import pkgutil

import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import whet
import whet.kernels
from whet.kernels.checks import RESULTS
from whet.targets.triton.autotuner import Autotuner
from whet.targets.triton.source import source_of


def kernels():
    found = {}
    for module in pkgutil.iter_modules(whet.kernels.__path__, "whet.kernels."):
        for value in list(vars(importlib.import_module(module.name)).values()):
            if isinstance(value, Autotuner):
                found[value.base_fn.__name__] = source_of(value).fingerprint
    return found


@pytest.mark.medium
@pytest.mark.parametrize("bundle", sorted(RESULTS.glob("*.whet")), ids=lambda path: path.stem)
def test_shipped_results_are_of_the_kernels_as_they_are(bundle):
    with whet.open_store(":memory:", bundle=bundle) as store:
        shipped = {one.workload.kernel: one.workload.fingerprint for one in store.workloads()}
    now = kernels()
    both = shipped.keys() & now.keys()
    assert len(both) >= 5
    assert {name: shipped[name] for name in both} == {name: now[name] for name in both}


@pytest.mark.medium
def test_the_fingerprint_of_a_kernel_without_shipped_results():
    assert kernels()["fp8_gemm_kernel"] == "733aad1b36988eb6f7d65f0d26b8147f"
