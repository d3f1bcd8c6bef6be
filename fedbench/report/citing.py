"""How the papers behind a table are cited: a line for each paper, and BibTeX."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fedbench import __version__
from fedbench.errors import UserError
from fedbench.report.grouping import registered
from fedbench.results import Result

# A paper as methods name theirs: `Su et al., FedRA, ECCV 2024, arXiv 2311.11227`, each part but the first optional.
SECTION = re.compile(r",? (?:Sec|Section|App|Appendix|Table|Eq)\b\.? .*$")
AFTER = "after "  # before the title, where a method is its authors' own and not the paper's
EPRINT = re.compile(r"arXiv[ :](\d{4}\.\d{4,5})")
YEAR = re.compile(r"\b(?:19|20)\d\d\b")
LATEX = str.maketrans({character: f"\\{character}" for character in "&%#_$"})


def cited(results: Sequence[Result], papers: Mapping[str, str]) -> dict[str, list[str]]:
    """By paper, the methods of these results that are from it: `fedra`, or `fedra_cover (based on fedra)` where a suite
    has another name for one. papers: of installed methods, by name; those of others stand in their results."""
    labels: dict[str, dict[str, None]] = {}
    for r in results:
        name, label = registered([r]), r.entry.method
        if paper := papers.get(name) or r.manifest.get("method", {}).get("paper"):
            labels.setdefault(paper, {})[label if label == name else f"{label} (based on {name})"] = None
    return {paper: list(names) for paper, names in labels.items()}


def listed(papers: Mapping[str, Sequence[str]]) -> list[str]:
    """`fedra, fedra_cover (based on fedra): Su et al., ...` for each paper. papers: as `cited` returns them."""
    return [f"{', '.join(names)}: {paper}" for paper, names in papers.items()]


def bibliography(papers: Mapping[str, Sequence[str]]) -> str:
    """BibTeX of these papers, as `cited` returns them, and of fedbench. Raises: UserError where there is none."""
    if not papers:
        raise UserError("nothing here names a paper: `fedbench methods --format bibtex` has those of all methods")
    whole: dict[str, list[str]] = {}
    for paper, names in papers.items():
        whole.setdefault(SECTION.sub("", paper), []).extend(names)
    entries = [f"% {' '.join(', '.join(names).split())}\n{bibtex(paper)}" for paper, names in whole.items()]
    own = {"author": "{The fedbench authors}", "title": "fedbench", "version": __version__}
    head = "% fedbench knows the names of methods, not the titles of papers: complete them."
    return "\n\n".join([head, *entries, _entry("software", "fedbench", own)]) + "\n"


def bibtex(paper: str, key: str = "") -> str:
    """The entry of a paper, as far as its parts are known; else the whole text as a note. key: made if not given."""
    first, *others = [part.strip() for part in paper.split(",")]
    if not others or ":" in first:
        return _entry("misc", key or _key(paper), {"note": paper})
    authors, title = first.replace(" et al.", " and others"), others[0].removeprefix(AFTER)
    eprint, year = EPRINT.search(paper), YEAR.search(EPRINT.sub("", paper))
    venue = next((part for part in others[1:] if YEAR.search(part) and not EPRINT.search(part)), "")
    fields = {"author": authors, "title": f"{{{title}}}"}
    if published := YEAR.sub("", venue).strip():
        fields["howpublished"] = published
    if year:
        fields["year"] = year[0]
    if eprint:
        fields |= {"eprint": eprint[1], "archiveprefix": "arXiv"}
    return _entry("misc", key or _key(first.split()[0], year[0] if year else "", title), fields)


def _key(*parts: str) -> str:
    return "".join(re.sub(r"[^a-z0-9]", "", part.lower()) for part in parts)


def _entry(kind: str, key: str, fields: Mapping[str, str]) -> str:
    rows = [f"  {name} = {{{value.translate(LATEX)}}}" for name, value in fields.items()]
    return ",\n".join([f"@{kind}{{{key}", *rows]) + "\n}"
