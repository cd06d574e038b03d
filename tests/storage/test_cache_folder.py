"""The cache gives back what it was given, or nothing."""

import os

import pytest
import torch

from cl_graft.runtime.run_context import cache_key
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.files import pack


def test_what_was_put_comes_back_with_the_same_bits(tmp_path):
    tensors = {
        "a": torch.tensor([1.0, float("nan"), -0.0]),
        "b": torch.tensor([[1.5]], dtype=torch.bfloat16),
        "c": torch.arange(3),
    }
    DirectoryCache(tmp_path / "cache").put("dense-1", tensors, {"dev": 0.5, "step": 3})
    found = DirectoryCache(tmp_path / "cache").get("dense-1")
    assert found is not None
    assert found[1] == {"dev": 0.5, "step": 3}
    for name, tensor in tensors.items():
        assert found[0][name].dtype == tensor.dtype
        assert torch.equal(found[0][name].nan_to_num(7), tensor.nan_to_num(7))
        assert torch.equal(found[0][name].signbit(), tensor.signbit())


@pytest.mark.parametrize("keep", [0, 5, 60, -1])
def test_a_damaged_file_is_a_miss_that_can_be_written_again(tmp_path, keep):
    cache = DirectoryCache(tmp_path)
    cache.put("ranking-1", {"order": torch.arange(9)}, {})
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:keep])
    assert cache.get("ranking-1") is None
    cache.put("ranking-1", {"order": torch.arange(4)}, {})
    found = cache.get("ranking-1")
    assert found is not None
    assert found[0]["order"].tolist() == [0, 1, 2, 3]


def test_a_file_under_another_name_is_a_miss(tmp_path, caplog):
    cache = DirectoryCache(tmp_path)
    cache.put("dense-1", {"a": torch.ones(3)}, {"dev": 0.5})
    (tmp_path / "dense-1.safetensors").rename(tmp_path / "dense-2.safetensors")
    assert cache.get("dense-2") is None
    assert "it was stored under the key 'dense-1'; it is computed again" in caplog.text
    cache.put("dense-2", {"a": torch.zeros(3)}, {"dev": 0.25})
    found = cache.get("dense-2")
    assert found is not None
    assert found[1] == {"dev": 0.25}


@pytest.mark.parametrize(
    "change", [{"values": 3}, {"seconds": "long"}, {"key": ["dense-1"]}, {"key": "dense-2"}]
)
def test_a_whole_file_that_says_something_else_is_a_miss(tmp_path, change):
    content = {"key": "dense-1", "values": {}, "seconds": 0.5, **change}
    path = tmp_path / "dense-1.safetensors"
    path.write_bytes(pack({}, content, format="cl-graft-cache"))
    assert DirectoryCache(tmp_path).get("dense-1") is None
    path.unlink()
    path.mkdir()
    assert DirectoryCache(tmp_path).get("dense-1") is None


def test_another_version_of_the_package_has_keys_of_its_own(monkeypatch):
    asked = "dense", "content", {"steps": 3}, 0
    before = cache_key(*asked)
    assert cache_key(*asked) == before
    monkeypatch.setattr("cl_graft.__version__", "9.9.9")
    assert cache_key(*asked) != before


PLACES = {
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "link to nowhere": lambda path: path.symlink_to("nowhere"),
    "huge": lambda path: path.touch() or os.truncate(path, 2**40),
}


@pytest.mark.parametrize("kind", PLACES)
def test_what_is_no_file_of_a_cache_is_a_miss(tmp_path, kind):
    PLACES[kind](tmp_path / "dense-1.safetensors")
    assert DirectoryCache(tmp_path).get("dense-1") is None
