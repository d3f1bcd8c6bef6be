"""What mkdocs calls while it builds the site, see `hooks` in mkdocs.yml."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

sys.path.insert(0, str(Path(__file__).parents[1]))

from sitemaking import commands, components, docstrings, equations, keys, linking

MADE = {"commands.md": commands.page, "components.md": components.page, "keys.md": keys.page}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as GitHub makes them, so that one link serves both."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, the texts that lie elsewhere, and the files that any page links to."""
    texts = {f"docs/{page.src_uri}": page.content_string for page in files.documentation_pages()}
    texts |= {place: (linking.ROOT / place).read_text("utf-8") for place in linking.ELSEWHERE}
    for place, page in linking.ELSEWHERE.items():
        files.append(File.generated(config, page, content=texts[place]))
    for page, make in MADE.items():
        files.append(File.generated(config, page, content=make()))
    for file in sorted(set(linking.files_linked(texts))):
        content = (linking.ROOT / file).read_bytes()
        files.append(File.generated(config, linking.copy_of(file), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return linking.relinked(markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return docstrings.listed(equations.shown(html))
