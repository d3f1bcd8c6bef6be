"""docs/suites.md, the pages on clients, and every suite on any page: all load, and no key or value is left out."""

from __future__ import annotations

import re

import pytest
from command import fedbench
from pages import PAGES, ROOT, blocks, in_code, place, prose

from fedbench.suite import client_keys, keys, load
from fedbench.suite.validate import homes
from fedbench.suite.yaml import Problems, parse

# What a fragment leaves out, and what its own settings may.
AROUND = {"suite": "suite: fragment", "defaults": "defaults: {}", "methods": "methods: [fedra]"}
NEEDED = {"backbone": "micro_vit", "data": "{name: strokes6}", "capacities": "[12, 10, 8, 6, 4, 3]"}
GEAR = {"devices": client_keys.DevicesKeys, "fit": client_keys.FitKeys, "device_scale": client_keys.ScaleKeys}
FRAGMENTS = [block for page in PAGES for block in blocks(page, "yaml")]


@pytest.mark.parametrize("block", FRAGMENTS, ids=place)
def test_every_suite_of_the_pages_loads(examples, block, tmp_path):
    fragment = parse(block.text, block.place, Problems()).plain()
    around = [line for key, line in AROUND.items() if key not in fragment]
    if "scenarios" not in fragment:
        left = ", ".join(f"{key}: {value}" for key, value in NEEDED.items() if key not in fragment.get("defaults", ()))
        around.append(f"scenarios: {{one: {{{left}}}}}")
    file = tmp_path / "suite.yaml"
    file.write_text("\n".join([*around, block.text]))
    for overlay in (None, *fragment.get("overlays", ())):
        for profile in ("paper", "reference"):
            assert load(file, examples.catalogue, profile=profile, data=overlay).points()


def keys_of(shape) -> set[str]:
    return set(shape.__annotations__)


def test_every_key_of_a_suite_stands_on_a_page():
    pages = ("suites.md", "clients.md", "devices.md", "faults.md", "../suites/papers/README.md")
    named = set().union(*map(in_code, pages))
    wanted = set(homes()) | keys_of(keys.SuiteKeys) | keys_of(keys.MethodKeys)
    wanted |= keys_of(keys.ExpectedKeys) | keys_of(keys.ExpectedFileKeys)
    for key, shape in {
        "capacities": client_keys.CapacityKeys,
        "ranks": client_keys.RankKeys,
        "widths": client_keys.WidthKeys,
        **GEAR,
    }.items():
        wanted |= {f"{key}.{part}" for part in keys_of(shape)}
    wanted |= keys_of(keys.TuneKeys) | keys_of(keys.RangeKeys) | keys_of(client_keys.DeviceKeys)
    wanted |= {f"data.proxy.{key}" for key in keys_of(keys.ProxyKeys)}
    wanted |= {f"participation.{key}" for key in keys_of(keys.ParticipationKeys)}
    assert not wanted - named


def test_every_value_that_a_profile_sets_stands_on_the_page(registry):
    named = in_code("suites.md")
    options = {key for c in registry.catalogue for values in c.profiles.values() for key in values}
    assert options and not options - named
    nested = {key for c in registry.catalogue for part in c.profiles.values() for v in part.values()
              if isinstance(v, dict) for key in v}  # fmt: skip
    assert not nested - {"name"} - named


def test_the_grid_of_the_first_suite_is_counted_rightly(examples, tmp_path):
    first = blocks(ROOT / "docs/suites.md", "yaml")[0]
    (tmp_path / "suite.yaml").write_text(first.text)
    count = len(load(tmp_path / "suite.yaml", examples.catalogue).points())
    said = re.search(rf"are {count} names of (\d+) ", prose(ROOT / "docs/suites.md"))
    planned = fedbench("plan", "suite.yaml", cwd=tmp_path).output
    assert said and f"{said[1]} cells under {count} names" in " ".join(planned.split())
