"""fedbench/report/paper.py: the papers behind a table, as lines and as BibTeX."""

from __future__ import annotations

import re

import pytest
from boards import write

from fedbench import __version__
from fedbench.errors import UserError
from fedbench.registry.registry import Registry
from fedbench.report.paper import bibliography, bibtex, listed
from fedbench.report.style import style
from fedbench.report.views import lists
from fedbench.report.views.by_name import chosen
from fedbench.results import load


def test_a_paper_becomes_an_entry_with_what_its_text_says():
    assert bibtex("Su et al., FedRA, ECCV 2024, arXiv 2311.11227") == (
        "@misc{su2024fedra,\n  author = {Su and others},\n  title = {{FedRA}},\n  howpublished = {ECCV},\n"
        "  year = {2024},\n  eprint = {2311.11227},\n  archiveprefix = {arXiv}\n}"
    )
    assert "year = {2025}" in bibtex("Fang et al., FSLoRA, 2025, arXiv 2501.19389")
    assert "howpublished" not in bibtex("Fang et al., FSLoRA, 2025, arXiv 2501.19389")
    assert "author = {Chen and Chao}" in bibtex("Chen and Chao, Fed-RoD, ICLR 2022, arXiv 2107.00778")
    after = bibtex("Wu et al., after SmartFreeze, 2024, arXiv 2408.09101")  # a method of our own
    assert after.startswith("@misc{wu2024smartfreeze,") and "title = {{SmartFreeze}}" in after
    assert "year = {2024}" in bibtex("Kim et al., Mine, 2024, arXiv 2023.12345"), "an arXiv number is no year"


@pytest.mark.parametrize("paper", ["a talk 50 % done", "extends fedra: Su et al., FedRA, ECCV 2024"])
def test_a_text_that_is_no_paper_of_this_form_is_a_note_that_latex_can_set(paper):
    made = bibtex(paper, "mine")
    assert made.startswith("@misc{mine,\n  note = {") and "author" not in made
    assert not re.search(r"(?<!\\)%", made)


def test_a_leaderboard_gives_each_paper_once_with_all_its_methods(tmp_path):
    for method in ("fedra", "alllarge", "inclusivefl", "majority"):
        write(tmp_path / "s", method, (0.8, 0.6))
    found = chosen(load([tmp_path]), form="bibtex")
    text = style(found, "bibtex")
    assert re.findall(r"^@\w+\{(.+),$", text, re.MULTILINE) == ["su2024fedra", "liu2022inclusivefl", "fedbench"]
    assert "% fedra, alllarge\n@misc{su2024fedra," in text and f"version = {{{__version__}}}" in text
    assert any(line.startswith("fedra: Su et al.") for line in listed(found.attrs["papers"]))


def test_every_paper_of_a_shipped_method_has_a_key_of_its_own():
    papers = lists.methods(Registry().catalogue.components["method"].values()).attrs["papers"]
    keys = re.findall(r"^@\w+\{(.+),$", bibliography(papers), re.MULTILINE)
    assert len(set(keys)) == len(keys) > 20


def test_a_table_without_papers_says_where_they_are():
    with pytest.raises(UserError, match="fedbench methods --format bibtex"):
        bibliography({})
