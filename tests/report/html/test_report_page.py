"""The page in a real browser: it shows, sorts, filters, prints, and lets no name act."""

from __future__ import annotations

import pytest
from browsing import axe, opened
from reports import HOSTILE, NAMES

FIRST = "#board-1"


def column(seen, title, board=FIRST):
    """The cells of a column, from the top."""
    return seen.page.evaluate(
        r"""([board, title]) => {
          const table = document.querySelector(`${board} table`);
          const heads = [...table.tHead.rows[0].cells].map((cell) => cell.innerText.trim().replace(/\s+/g, " "));
          const at = heads.findIndex((text) => text.startsWith(title));
          return [...table.tBodies[0].rows].map((row) => row.cells[at].innerText.trim());
        }""",
        [board, title],
    )


# Names that reach out of their cell, and so into the numbers beside them.
OVERFULL = """[...document.querySelectorAll("tbody th")].filter((th) => th.scrollWidth > th.clientWidth + 1)
  .map((th) => th.textContent)"""


def heads(seen, board=FIRST):
    return [text.strip() for text in seen.page.locator(f"{board} thead th").all_inner_texts()]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_it_renders_in_both_themes_on_phone_and_desk(browser, page, width, theme):
    with opened(browser, page, width=width, theme=theme) as seen:
        assert seen.page.locator("h1").inner_text() == "feature_skew"
        assert seen.page.locator("section.board table").count() >= 3
        assert seen.page.locator("svg.chart").count() >= 8
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        assert seen.page.evaluate(OVERFULL) == []
        paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, paper.strip("rgb()").split(","))) < 200) == (theme == "dark")
        assert "[object" not in seen.page.locator("main").text_content()
        assert "NaN" not in seen.page.locator("main").inner_html()


def test_a_column_sorts_both_ways_and_the_address_keeps_it(browser, page):
    with opened(browser, page) as seen:
        given = column(seen, "method")
        seen.page.locator(f"{FIRST} th button", has_text="down + up").click()
        assert column(seen, "down + up")[0] == "2.00 MB" and column(seen, "down + up")[-3:] == ["549 kB", "240 B", ""]
        assert seen.page.locator(f"{FIRST} th[aria-sort=descending]").inner_text().startswith("down + up")
        assert seen.page.evaluate("document.activeElement.textContent") == "down + up"
        seen.page.keyboard.press("Enter")
        assert column(seen, "down + up")[0] == "240 B" and column(seen, "down + up")[-1] == ""
        address = seen.page.url
        seen.page.keyboard.press("Enter")
        assert column(seen, "method") == given and "#" not in seen.page.url
    with opened(browser, page, view=address.partition("#")[2]) as seen:
        assert column(seen, "down + up")[0] == "240 B"


def test_what_is_shown_is_chosen_in_menus_and_in_the_address(browser, page):
    with opened(browser, page, view="method=fedra,depthfl&domain=solid,dim&columns=average,group") as seen:
        assert [name.split()[0] for name in column(seen, "method")] == ["depthfl", "depthfl/last", "fedra"]
        assert heads(seen) == ["method", "average", "group", "solid", "dim"]
        assert "2 of 8 methods" in seen.page.locator("#showing").inner_text()
        seen.page.locator(".menu summary", has_text="Methods").click()
        seen.page.get_by_role("checkbox", name="depthfl").uncheck()
        assert [name.split()[0] for name in column(seen, "method")] == ["fedra"]
        assert "method=fedra&" in seen.page.url
        seen.page.keyboard.press("Escape")
        seen.page.get_by_role("button", name="Reset").click()
        assert len(column(seen, "method")) == 9 and "#" not in seen.page.url


def test_a_role_a_seed_and_a_domain_change_tables_and_pictures(browser, page):
    with opened(browser, page, view="role=floor,ceiling&seed=1&domain=dim&x=flops") as seen:
        assert [name.split() for name in column(seen, "method")] == [["alllarge", "ceiling"], ["allsmall", "floor"]]
        assert "±" not in "".join(column(seen, "average"))
        assert "seed 1" in seen.page.locator(f"{FIRST} figcaption").first.inner_text()
        told = seen.page.locator(f"{FIRST} svg.chart").first.get_attribute("aria-label")
        assert "FLOPs" in told and "alllarge" in told and "fedra" not in told


def test_the_addresss_nonsense_shows_everything(browser, page):
    with opened(browser, page, view="seed=99&sort=nothing-&x=%E0%A4%A&method=<img>&&=&columns") as seen:
        assert seen.page.locator("h1").inner_text() == "feature_skew"


def test_a_table_is_taken_along_as_compare_writes_it(browser, page):
    from test_report_data import texts_of

    with opened(browser, page) as seen, seen.page.expect_download() as waiting:
        seen.page.locator(f"{FIRST} .take button", has_text="LaTeX").click(modifiers=["Shift"])
        with open(waiting.value.path(), encoding="utf-8") as file:
            assert file.read() == texts_of(page)["board 1"]["latex"]
        assert waiting.value.suggested_filename == "board-1.tex"


@pytest.mark.parametrize("width", [390, 1400])
def test_every_link_of_the_contents_lands_at_its_section(browser, many, width):
    with opened(browser, many, width=width) as seen:
        links = seen.page.locator("ul.toc a").evaluate_all("links => links.map((a) => a.hash)")
        assert len(links) > 20
        for target in reversed(links):  # the last first: what lies above it was never on the screen
            seen.page.evaluate("scrollTo(0, 0)")
            seen.page.locator(f'ul.toc a[href="{target}"]').evaluate("link => link.click()")
            assert abs(distance(seen, target)) < 50, target
        assert "#" not in seen.page.url


def distance(seen, target):
    """Pixels from the lower edge of the bar on top to the upper edge of what a link leads to, once both stand still;
    what lies near the end of the page cannot come so far."""
    return seen.page.evaluate(
        """async (target) => {
          const place = () => document.querySelector(target).getBoundingClientRect().top;
          let before;
          do { before = place(); await new Promise((done) => setTimeout(done, 60)); } while (place() !== before);
          const end = scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
          return end ? 0 : place() - Math.max(0, document.getElementById("bar").getBoundingClientRect().bottom);
        }""",
        target,
    )


def test_the_link_past_the_bar_keeps_what_is_chosen(browser, page):
    with opened(browser, page, view="method=fedra") as seen:
        seen.page.locator("a.skip").evaluate("link => link.click()")
        assert seen.page.url.endswith("#method=fedra") and column(seen, "method")[0].startswith("fedra")


def test_it_prints_without_what_paper_cannot_do(browser, page):
    with opened(browser, page, theme="dark") as seen:
        assert len(seen.page.pdf(prefer_css_page_size=True)) > 20_000
        seen.page.emulate_media(media="print")
        assert not seen.page.locator("#bar").is_visible()
        assert not seen.page.locator(".take").first.is_visible()
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [390, 1400])
def test_hostile_names_are_text_and_nothing_else(browser, hostile, width):
    with opened(browser, hostile, width=width) as seen:
        text = seen.page.locator("main").text_content()
        assert HOSTILE in text and NAMES["quotes"] in text and NAMES["long"] in text
        assert "\\u202e" in text and "\u202e" not in text
        assert seen.page.locator("script").count() == 3 and seen.page.locator("img").count() == 0
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        seen.page.locator(".menu summary", has_text="Methods").click()
        seen.page.get_by_role("checkbox").first.uncheck()
        assert len(column(seen, "method")) == 4


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser, hostile, theme):
    script = axe()
    with opened(browser, hostile, theme=theme) as seen:
        for summary in seen.page.locator("details.more > summary").all()[:4]:
            summary.click()
        found = seen.page.evaluate(f"(async () => {{ {script}; return (await axe.run(document)).violations; }})()")
        serious = [v for v in found if v["impact"] in ("serious", "critical")]
        assert not serious, [(v["id"], v["nodes"][0]["html"][:200]) for v in serious]
