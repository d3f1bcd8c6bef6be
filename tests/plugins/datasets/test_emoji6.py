"""`emoji6`: drawn once from packages, dealt by emoji, anew with every seed where that is asked for."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import fedbench

from fedbench.data.sources import prepared
from fedbench.disk import hash_of_file
from fedbench.errors import DataMissing, UserError
from fedbench.registry.facts import CachedFacts
from fedbench_plugins.datasets import emoji6
from fedbench_plugins.partitions import by_domain

EMOJI = {"animal-bird": [f"bird-{i}" for i in range(12)], "game": [f"game-{i}" for i in range(15)]}
FEW = {"phone": [f"phone-{i}" for i in range(11)]}  # too few for a class


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def drawn(root: Path, side: int = 8) -> Path:
    """What `prepare` makes, without its packages: every image of one colour, by style and emoji."""
    from PIL import Image

    folder = root / "prepared/emoji6"
    for s, style in enumerate(emoji6.SETS):
        for c, (name, emojis) in enumerate(EMOJI.items()):
            for e, emoji in enumerate(emojis):
                (file := folder / "images" / style / name / f"{emoji}.png").parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (side, side), (40 * s, 100 * c, 10 * e)).save(file)
    (folder / "emoji.json").write_text(json.dumps(EMOJI))
    (folder / "provenance.json").write_text("{}")
    return folder


def npm(file: Path, **members: object) -> Path:
    """A package of npm with these JSON files, by their paths with `__` for `/`."""
    with tarfile.open(file, "w:gz") as opened:
        for name, value in members.items():
            content = json.dumps(value).encode()
            entry = tarfile.TarInfo(f"package/{name.replace('__', '/')}.json")
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))
    return file


def packages(folder: Path):
    """Small packages in a folder, and the source that they are the packages of."""
    colours = dict(zip(emoji6.SETS, ("red", "lime", "blue", "aqua", "yellow", "black"), strict=True))
    for style, package in emoji6.SETS.items():
        body = f'<rect x="0" y="0" width="5" height="10" fill="{colours[style]}"/>'
        names = [*sum({**EMOJI, **FEW}.values(), []), f"only-{style}"]
        npm(folder / package.file, icons={"icons": {name: {"body": body} for name in names}, "width": 10, "height": 10})
    labels = [(name.replace("-", " "), group) for group, names in {**EMOJI, **FEW}.items() for name in names]
    groups = [*EMOJI, *FEW]
    data = [{"label": label, "subgroup": groups.index(group)} for label, group in labels]
    meta = {"subgroups": {str(i): group for i, group in enumerate(groups)}}
    npm(folder / emoji6.UNICODE, en__data=[*data, {"label": "regional indicator A"}], meta__groups=meta)
    known = [replace(package, sha256=hash_of_file(folder / package.file)) for package in emoji6.SOURCE.packages]
    return replace(emoji6.SOURCE, packages=tuple(known))


def kinds(images) -> set[tuple[int, int]]:
    """The class and the number of every emoji, by its colour."""
    return {(int(x[1, 0, 0]) // 100, int(x[2, 0, 0]) // 10) for x in images.x}


def test_every_style_is_drawn_from_its_package(tmp_path, empty_cache):
    pytest.importorskip("resvg_py")
    source = packages(tmp_path)
    assert prepared("emoji6", source, [tmp_path], emoji6.prepare)
    told = json.loads((empty_cache / "prepared/emoji6/provenance.json").read_text())
    assert told["drawn"] == "27 emoji of 2 classes in 6 styles, 224 pixels a side"
    assert told["made_from"][2]["licence"] == "CC BY-SA 4.0, OpenMoji" and len(told["made_from"]) == 7
    dataset = emoji6.make(8)
    assert dataset.classes == ("animal-bird", "game") and dataset.domains == tuple(emoji6.SETS)
    test = dataset.load().test
    for domain, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255), (0, 255, 255), (255, 255, 0), (0, 0, 0)]):
        image = test.x[test.domain == domain][0]
        assert image[:, 4, 1].tolist() == list(colour) and image[:, 4, 6].tolist() == [255] * 3  # white behind it


def test_a_package_that_is_missing_or_another_is_named(tmp_path, empty_cache):
    source = packages(tmp_path)
    (tmp_path / emoji6.UNICODE).rename(tmp_path / "kept")
    with pytest.raises(DataMissing, match="^emoji6 also needs emojibase-data@17.0.0: pip install .* npm pack @iconify"):
        prepared("emoji6", source, [tmp_path], emoji6.prepare)
    npm(tmp_path / emoji6.UNICODE, nothing=[])
    with pytest.raises(UserError, match="emojibase-data-17.0.0.tgz is not emojibase-data@17.0.0 as it was published"):
        prepared("emoji6", source, [tmp_path], emoji6.prepare)
    assert not (empty_cache / "prepared/emoji6").exists()
    said = fedbench("data", "prepare", "emoji6", cwd=tmp_path)
    assert said.exit_code == 2 and len(said.output.splitlines()) == 1
    assert said.output.startswith(
        "Error: emoji6 is not prepared on this machine: pip install 'fedbench-heft[emoji]'; npm"
    )
    assert said.output.endswith("emojibase-data@17.0.0; fedbench data prepare emoji6 --from .\n")


def test_no_tested_emoji_is_trained_on_in_any_style(empty_cache):
    drawn(empty_cache)
    splits = emoji6.make(8).load()
    train, test = kinds(splits.train), kinds(splits.test)
    assert not train & test and len(train | test) == 27
    assert np.bincount(splits.test.y).tolist() == [6 * 2, 6 * 3]  # a fifth of 12 and of 15
    assert np.bincount(splits.test.domain).tolist() == [5] * 6
    for image, domain in zip(splits.train.x, splits.train.domain, strict=True):
        assert image[0, 0, 0] == 40 * domain


def test_a_draw_tests_on_other_emoji(empty_cache):
    drawn(empty_cache)
    draws = [emoji6.make(8, draw=draw) for draw in (0, 1)]
    assert draws[0].fingerprint != draws[1].fingerprint
    assert kinds(draws[0].load().test) != kinds(draws[1].load().test)
    for own in draws:
        outline = own.outlined.load()
        for half in ("train", "test"):
            blank, images = getattr(outline, half), getattr(own.load(), half)
            assert np.array_equal(blank.y, images.y) and np.array_equal(blank.domain, images.domain)
            assert blank.x.shape == images.x.shape
    assert len(list((empty_cache / "splits").glob("*/index.json"))) == 1  # decoded once for all


def test_unseen_styles_are_tested_and_have_no_client(empty_cache):
    drawn(empty_cache)
    splits = emoji6.make(8, unseen=["openmoji", "noto"]).load()
    assert np.unique(splits.train.domain).tolist() == [1, 3, 4, 5] and np.unique(splits.test.domain).tolist() == [
        *range(6)
    ]
    clients = by_domain()(splits.train.y, splits.train.domain, 6, np.random.default_rng(0))
    assert [(client.id, client.domain) for client in clients] == [(0, 1), (1, 3), (2, 4), (3, 5)]
    for bad, why in ((["moto"], "unseen"), ([*emoji6.SETS], "unseen"), (["noto", "noto"], "unseen")):
        with pytest.raises(UserError, match=why):
            emoji6.make(8, unseen=bad)


SUITE = """\
suite: drawn
defaults:
  backbone: micro_vit
  data: {name: emoji6, image_size: 32, draw: seed}
  capacities: [12, 10, 8, 6, 4, 3]
  train: {rounds: 1, max_steps: 1, batch_size: 4}
scenarios:
  skew: {}
methods: [majority]
seeds: [0, 1]
"""


def test_a_suite_deals_every_seed_its_own(tmp_path, empty_cache, registry):
    from fedbench.simulation.simulation import Simulation
    from fedbench.suite import load

    drawn(empty_cache)
    (tmp_path / "drawn.yaml").write_text(SUITE)
    points = load(tmp_path / "drawn.yaml", registry.catalogue).points()
    for point, seed in zip(points, (0, 1), strict=True):
        own = Simulation(point.config, registry).federated.splits
        assert np.array_equal(own.test.x, emoji6.make(32, draw=seed).load().test.x)
        assert np.array_equal(own.train.y, emoji6.make(32, draw=seed).load().train.y)
    assert [point.config["data"]["draw"] for point in points] == [0, 1]
    outline = CachedFacts(registry).outline(points[1].config).load()
    assert np.array_equal(outline.train.y, emoji6.make(32, draw=1).load().train.y)
