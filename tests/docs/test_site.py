"""The site: every page is in its menu, what is made is whole, and mkdocs builds it without a warning."""

from __future__ import annotations

import html
import re
import subprocess
import sys

import pytest
from pages import ROOT, prose
from ruamel.yaml import YAML

from sitemaking import commands, components, docstrings, keys, linking

MENU = YAML(typ="safe", pure=True).load(ROOT / "mkdocs.yml")["nav"]
MADE = {"commands.md": commands.page, "components.md": components.page, "keys.md": keys.page}


def listed(menu: list | str) -> list[str]:
    return (
        [menu]
        if isinstance(menu, str)
        else [page for entry in menu for part in entry.values() for page in listed(part)]
    )


def test_every_page_stands_in_the_menu_once():
    pages = [str(file.relative_to(ROOT / "docs")) for file in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed(MENU)) == sorted([*pages, *MADE, *linking.ELSEWHERE.values()])


def test_every_method_has_its_equations(registry):
    headings = re.findall(r"^### (.*)$", prose(ROOT / "docs/methods.md"), flags=re.MULTILINE)
    methods = {name for name, c in registry.catalogue.components["method"].items() if c.package == "fedbench"}
    assert {name for heading in headings for name in re.findall(r"`(\w+)`", heading)} == methods


@pytest.mark.parametrize("page", ["costs.md", "methods.md"])
def test_every_equation_can_be_shown(page):
    pytest.importorskip("docutils", reason="equations are shown by the extra docs")
    from sitemaking.equations import shown

    text = re.sub(r"`[^`\n]*`", "", prose(ROOT / "docs" / page))
    found = [*re.findall(r"\$\$(.+?)\$\$", text, flags=re.DOTALL)]
    found += re.findall(r"\$([^$]+)\$", re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL))
    assert found
    for tex in found:
        marked = shown(f'<p><span class="arithmatex">\\({html.escape(tex)}\\)</span></p>')
        assert "<math" in marked and "arithmatex" not in marked
    with pytest.raises(ValueError, match="cannot be shown"):
        shown('<span class="arithmatex">\\(\\nosuchthing\\)</span>')


def prose_of(text: str) -> str:
    """A page's Markdown without its code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", MADE)
def test_what_is_made_is_whole(page, registry):
    text = MADE[page]()
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= anchors
    rows = re.findall(r"^\|.*$", re.sub(r"`[^`]*`", "", text), flags=re.MULTILINE)
    assert all(len(re.findall(r"(?<!\\)\|", row)) in (3, 4) for row in rows), "a cell has broken its table"


def test_every_command_every_component_and_every_key_is_on_its_page(registry):
    text, made = commands.page(), components.page()
    for path, context in commands.walk():
        assert re.search(rf"^#+ fedbench {' '.join(path)}$", text, flags=re.MULTILINE)
        assert not [
            one
            for p in context.command.params
            if not getattr(p, "hidden", False)
            for one in p.opts
            if one.startswith("-") and one not in text
        ]
    assert not re.search(r"(?<![\\\]])\[[^\]]*\](?!\()", prose_of(text + made + keys.page())), (
        "mkdocs takes it for a link"
    )
    assert all(f"### {c.kind} `{c.name}`" in made for c in components.own())
    assert {"`suite` (needed)", "`max_steps`", "`device_jitter`"} <= set(re.findall(r"^\| (.+?) \|", keys.page(), re.M))


@pytest.mark.parametrize(
    ("page", "link", "becomes"),
    [
        ("suites.md", "(../SECURITY.md)", "[x](security.md)"),
        ("suites.md", "(results.md#the-folder)", "[x](results.md#the-folder)"),
        ("suites.md", "(#sweeps)", "[x](#sweeps)"),
        ("citing.md", "(../CITATION.cff)", "[x](files/CITATION.cff.txt)"),
        ("plugins.md", "(../plugins)", "x"),
        ("hooks/metrics.md", "(../results.md#the-folder)", "[x](../results.md#the-folder)"),
        ("papers_suites.md", "(../../docs/suites.md#sweeps)", "[x](suites.md#sweeps)"),
        ("papers_suites.md", "(fedra/table1.yaml)", "[x](files/suites/papers/fedra/table1.yaml.txt)"),
        ("data.md", "(https://arxiv.org)", "[x](https://arxiv.org)"),
    ],
)
def test_links_lead_to_pages_and_to_copies_of_files(page, link, becomes):
    fenced = f"```\n[x]{link}\n```"
    assert linking.relinked(f"[x]{link}\n{fenced}", page) == f"{becomes}\n{fenced}"


def test_parameters_of_a_docstring_become_a_list():
    page = "<p>It takes</p><p>:param a: one,\n  or two.\n:param b: three.</p>"
    items = "<li><code>a</code>: one,\n  or two.</li>\n<li><code>b</code>: three.</li>"
    assert docstrings.listed(page) == f"<p>It takes</p><ul>{items}</ul>"


@pytest.mark.slow
def test_it_builds_without_a_warning_and_asks_nobody_for_anything(tmp_path):
    pytest.importorskip("mkdocs", reason="the site is built by the extra docs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        asked = re.findall(
            r"<(?:script|img|link|iframe)\b[^>]*(?:src|href)=\"?(https?:[^\" >]*)", page.read_text("utf-8")
        )
        assert not asked, page.name
        assert "arithmatex" not in page.read_text("utf-8"), page.name
