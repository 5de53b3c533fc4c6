"""CUDA's driver as a library that only writes down what it is asked for."""

import pytest

from whet.testing import fake_cuda


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return fake_cuda.built(tmp_path_factory.mktemp("fake-cuda"))


@pytest.fixture
def log(library, monkeypatch, tmp_path):
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("FAKE_CUDA_LOG", str(path))
    with fake_cuda.in_place(library):
        yield lambda: [line.partition(" ")[2] for line in path.read_text().splitlines()]
