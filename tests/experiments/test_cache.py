"""The cache gives back what it was given, or nothing."""

import pytest
import torch

from cl_graft.caching import cache_key
from cl_graft.experiments.cache import DirectoryCache


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


def test_an_unknown_key_is_a_miss_and_makes_no_folder(tmp_path):
    cache = DirectoryCache(tmp_path / "cache")
    assert cache.get("dense-1") is None
    assert cache.misses == {"dense": 1}
    assert not cache.folder.exists()


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


def test_a_hit_says_how_long_the_outcome_took(tmp_path):
    cache = DirectoryCache(tmp_path)
    cache.get("dense-1")
    cache.put("dense-1", {}, {})
    cache.get("dense-1")
    cache.get("dense-1")
    assert cache.hits == {"dense": 2}
    assert cache.saved["dense"] > 0
    assert cache.saved["dense"] < 10


def test_another_version_of_the_package_has_keys_of_its_own(monkeypatch):
    asked = "dense", "content", {"steps": 3}, 0
    before = cache_key(*asked)
    assert cache_key(*asked) == before
    monkeypatch.setattr("cl_graft.__version__", "9.9.9")
    assert cache_key(*asked) != before
