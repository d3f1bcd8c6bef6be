"""Fixtures around a made-up catalogue: a way to load a suite from a text."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import KnownFacts, built_catalogue, component

from fedbench.errors import UserError
from fedbench.registry.catalogue import Catalogue
from fedbench.suite import Suite, load


@pytest.fixture
def catalogue() -> Catalogue:
    return built_catalogue()


@pytest.fixture
def papers_catalogue(catalogue) -> Catalogue:
    """With the components of the papers' data, where they are not among the others."""
    wanted = [component("dataset", name, root=None) for name in ("domainnet", "nicopp")]
    wanted.append(component("partition", "iid", clients=1))
    catalogue.add([one for one in wanted if one.name not in catalogue.components[one.kind]])
    return catalogue


@pytest.fixture
def facts() -> KnownFacts:
    return KnownFacts()


@pytest.fixture
def suite_of(tmp_path, catalogue, facts, monkeypatch):
    """suite_of(text, **options of load) -> Suite, the file being called s.yaml in the current folder."""
    monkeypatch.chdir(tmp_path)

    def build(text: str, **options) -> Suite:
        Path("s.yaml").write_text(text)
        return load("s.yaml", catalogue, **{"facts": facts, **options})

    return build


@pytest.fixture
def faults_of(suite_of):
    """faults_of(text) -> the lines of the error, none where the suite is fine."""

    def find(text: str, **options) -> list[str]:
        try:
            suite_of(text, **options).points()
        except UserError as error:
            return str(error).splitlines()
        return []

    return find
