"""The page in a real browser, from a plain file: it opens without errors, asks for nothing, and its figures answer."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from goru.lab import paper, report
from tests.lab import test_report as synthetic
from tests.lab import test_report_on_data as on_data
from tests.shared import report_on_the_record

CHROMIUM = os.environ.get("GORU_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian: apt install chromium)")

CURVES = {"goru": [2.0, 0.9, 0.4, 0.05], "gru": [2.0, 1.1, 1.0, 0.98]}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report with a figure of every kind, two variants, two seeds, and runs that have not ended."""
    folder = tmp_path_factory.mktemp("page")
    for experiment in ("copying", "denoise", "parenthesis"):
        for k, model in enumerate(paper.SYNTHETIC_MODELS):
            for seed in (0, 1):
                curve = [value * (1 + 0.1 * seed) for value in CURVES.get(model, [2.0, 0.8, 0.7 - k / 20, 0.6])]
                gates = synthetic.gate_figure(0.9, 0.2 + k / 20) if experiment == "parenthesis" else None
                synthetic.write_run(folder, experiment, model, curve, seed=seed, figure=gates)
    synthetic.write_run(folder, "denoise", "goru", [2.0, 0.5], variant="lr0.001", finished=False)
    for task in (1, 2):
        on_data.write_run(folder, "babi", "goru", f"task{task:02}", {"test_accuracy": 0.5})
    frames = [[float(f + t) for f in range(5)] for t in range(7)]
    spectrum = {
        "spectrum_truth": frames,
        "spectrum_prediction": frames[::-1],
        "spectrum_seconds_a_frame": 0.016,
        "spectrum_highest_hertz": 4000.0,
    }
    on_data.write_run(folder, "speech", "goru", "paper", {"test_loss": 0.7}, figure=spectrum)
    return report.write(folder, folder / "report").page.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page, open; at the end, that nothing went wrong in it and that it asked for nothing but itself."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    told: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: told.append(message.text))  # a request that the policy forbids is told here too
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    assert told == []
    assert [url for url in asked if not url.startswith("data:")] == [address]
    page.close()


def figure(page: Page, name: str):
    return page.locator(f'figure[data-figure="{name}"]')


def unfold(page: Page) -> None:
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")


def test_every_figure_shows(page: Page) -> None:
    figures = page.locator("figure[data-figure]")
    assert figures.count() == 8  # overview; losses of copying, twice denoise, parenthesis, speech; gates; spectrum
    unfold(page)
    for k in range(figures.count()):
        one = figures.nth(k)
        live = "live" in (one.get_attribute("class") or "")
        picture = one.locator("svg").first if live else one.locator("img")
        box = picture.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 100
        if live:
            drawn = one.locator("path.curve, path.bars")
            assert drawn.count() > 0
            assert all(len(d or "") > 20 for d in drawn.evaluate_all("all => all.map(p => p.getAttribute('d'))"))
            expect(one.locator("img")).to_be_hidden()
        else:
            assert picture.evaluate("image => image.naturalWidth") > 100


def test_a_model_is_switched_off_and_on(page: Page) -> None:
    copying = figure(page, "copying-paper")
    gru = copying.get_by_role("button", name="GRU", exact=True)
    curve = copying.locator('path.curve[data-series="GRU"]')
    expect(curve).to_have_count(1)
    expect(gru).to_have_attribute("aria-pressed", "true")
    gru.click()
    expect(curve).to_have_count(0)
    expect(gru).to_have_attribute("aria-pressed", "false")
    expect(copying.locator("path.curve")).to_have_count(len(paper.SYNTHETIC_MODELS) - 1)
    assert copying.locator("path.band").count() == len(paper.SYNTHETIC_MODELS) - 1
    expect(figure(page, "denoise-paper").locator('path.curve[data-series="GRU"]')).to_have_count(1)
    gru.press("Enter")
    expect(curve).to_have_count(1)


def test_values_beside_the_pointer_and_by_keys(page: Page) -> None:
    copying = figure(page, "copying-paper")
    chart, tip = copying.locator("svg[tabindex]"), copying.locator(".tip")
    expect(tip).to_be_hidden()
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": 60, "y": 100})
    expect(tip).to_contain_text("iteration 0")
    expect(tip).to_contain_text(re.compile(r"GORU 2\.1"))  # the mean of two seeds
    box, whole = tip.bounding_box(), chart.bounding_box()
    assert box is not None
    assert whole is not None
    assert abs(box["x"] - (whole["x"] + 60)) < 40  # beside the pointer
    assert whole["y"] <= box["y"] <= whole["y"] + 100
    page.mouse.move(0, 0)
    expect(tip).to_be_hidden()
    chart.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("iteration 200")
    expect(tip).to_contain_text(re.compile(r"GORU 0\.42"))
    page.keyboard.press("ArrowLeft")
    expect(tip).to_contain_text("iteration 100")
    expect(copying.locator("circle").first).to_be_attached()
    page.keyboard.press("Escape")
    expect(copying.locator("circle")).to_have_count(0)


def test_lines_are_labeled_at_their_ends(page: Page) -> None:
    copying = figure(page, "copying-paper")
    labels = copying.locator("text.label")
    names = [*(paper.title(name) for name in paper.SYNTHETIC_MODELS), "baseline"]
    assert sorted(labels.all_text_contents()) == sorted(names)
    tops = sorted(labels.evaluate_all("all => all.map(one => one.getBoundingClientRect().top)"))
    assert all(low - high > 10 for high, low in pairwise(tops))  # none covers another
    right = copying.locator("svg[tabindex]").evaluate("svg => svg.getBoundingClientRect().right")
    assert max(labels.evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")) <= right


def test_curves_off_the_scale_are_marked(browser: Browser, tmp_path: Path) -> None:
    synthetic.write_run(tmp_path, "copying", "gru", [2.0, *[0.9] * 50])
    synthetic.write_run(tmp_path, "copying", "goru", [2.0, *[0.5] * 49, 40.0])
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(report.write(tmp_path, tmp_path / "report").page.as_uri())
    expect(figure(page, "copying-paper").locator("text.label", has_text="GORU")).to_have_text("GORU ↑ 40")
    expect(figure(page, "overview").locator("path.off")).to_have_count(1)
    page.close()


def test_the_overview_has_the_models_of_the_table_below_it(browser: Browser, tmp_path: Path) -> None:
    for model in ("goru", "goru-free"):
        synthetic.write_run(tmp_path, "copying", model, [2.0, 0.9, 0.5])
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(report.write(tmp_path, tmp_path / "report").page.as_uri())
    expect(figure(page, "copying-paper").locator("path.curve")).to_have_count(2)
    expect(figure(page, "overview").locator("path.curve")).to_have_count(1)
    page.close()


def axis_labels(chart) -> list[str]:
    return chart.locator("text").all_text_contents()


def test_zoom(page: Page) -> None:
    copying = figure(page, "copying-paper")
    chart = copying.locator("svg[tabindex]")
    whole = axis_labels(chart)
    copying.get_by_role("button", name="Zoom in").click()
    assert axis_labels(chart) != whole
    copying.get_by_role("button", name="Show all").click()
    assert axis_labels(chart) == whole
    chart.focus()
    page.keyboard.press("+")
    assert axis_labels(chart) != whole
    page.keyboard.press("0")
    assert axis_labels(chart) == whole
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 80)  # a box drawn with the mouse
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 200, steps=4)
    page.mouse.up()
    dragged = axis_labels(chart)
    assert dragged != whole
    assert "300" not in dragged  # the end is out of sight
    for _ in range(12):
        page.mouse.wheel(0, 100)  # the chart has the focus: the wheel zooms out
    expect(chart.get_by_text("300", exact=True)).to_be_visible()


def test_axes(page: Page) -> None:
    parenthesis, copying = figure(page, "parenthesis-paper"), figure(page, "copying-paper")
    assert copying.locator(".choice").all_inner_texts() == ["x:\niterations\nminutes", "y:\nlinear\nlog"]
    expect(parenthesis.get_by_role("button", name="log")).to_have_attribute("aria-pressed", "true")
    expect(copying.get_by_role("button", name="log")).to_have_attribute("aria-pressed", "false")
    expect(copying.get_by_role("button", name="linear")).to_have_attribute("aria-pressed", "true")
    path = copying.locator('path.curve[data-series="GORU"]').get_attribute("d")
    copying.get_by_role("button", name="log").click()
    expect(copying.get_by_role("button", name="linear")).to_have_attribute("aria-pressed", "false")
    assert copying.locator('path.curve[data-series="GORU"]').get_attribute("d") != path
    copying.get_by_role("button", name="minutes").click()
    expect(copying.get_by_text("minutes of training")).to_be_visible()


def test_the_gates_are_scrubbed_along_time(page: Page) -> None:
    gates = figure(page, "parenthesis-paper-gates")
    slider, readout = gates.get_by_role("slider"), gates.locator(".readout")
    expect(readout).to_have_text(re.compile(r"^Step 0, noise: GORU 90% · .*GRU 90%"))
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(readout).to_have_text(re.compile(r"^Step 1, a bracket: GORU 20% · .* · GRU 45%"))
    before = gates.locator(".now").get_attribute("x")
    slider.fill("30")
    expect(readout).to_contain_text("Step 30, noise")
    assert gates.locator(".now").get_attribute("x") != before
    expect(gates.locator("path.bars")).to_have_count(len(paper.SYNTHETIC_MODELS))


def test_light_and_dark(page: Page) -> None:
    def color() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.emulate_media(color_scheme="light")
    light = color()
    page.emulate_media(color_scheme="dark")
    dark = color()
    assert light != dark
    page.get_by_role("button", name="Change to light colors").click()
    assert color() == light
    page.get_by_role("button", name="Change to dark colors").click()
    assert color() == dark


def test_by_keyboard_alone(page: Page) -> None:
    """Tab reaches the links, the charts, the switches of the models, and shows where it is."""
    reached = []
    for _ in range(90):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "[document.activeElement.tagName, document.activeElement.closest('figure')?.dataset.figure ?? '',"
                " getComputedStyle(document.activeElement).outlineStyle]"
            )
        )
    assert all(outline != "none" for _, _, outline in reached)
    kinds = [(tag.lower(), name) for tag, name, _ in reached]
    assert kinds.index(("svg", "copying-paper")) > kinds.index(("a", ""))
    assert kinds.count(("button", "copying-paper")) == 7 + len(paper.SYNTHETIC_MODELS)


def test_telephone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(figure(page, "copying-paper").locator("svg[tabindex]")).to_be_visible()
    box = figure(page, "copying-paper").locator("svg[tabindex]").bounding_box()
    assert box is not None
    assert box["width"] <= 390


def test_values_under_a_finger(browser: Browser, address: str) -> None:
    """A tap shows the values there, and they stay when the finger is lifted."""
    page = browser.new_page(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.goto(address)
    curves, gates = figure(page, "copying-paper"), figure(page, "parenthesis-paper-gates")
    for one, shown, said in ((curves, ".tip", r"^iteration [1-9]"), (gates, ".readout", r"^Step [1-9]")):
        chart = one.locator(".chart svg, div > svg").first
        box = chart.bounding_box()
        assert box is not None
        chart.tap(position={"x": 0.6 * box["width"], "y": 0.5 * box["height"]})
        expect(one.locator(shown)).to_have_text(re.compile(said))
    page.close()


def test_without_a_script_the_still_figures_show(browser: Browser, address: str) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(address)
    images = page.locator("figure img")
    assert images.count() == 8
    for name in ("summary", "claims"):
        expect(page.locator(f"#{name} h1, #{name} h2").first).to_be_visible()
    for closed in page.locator("section > details > summary, section .variant > details > summary").all():
        closed.click()  # folding needs no script
    for k in range(images.count()):
        expect(images.nth(k)).to_be_visible()
    page.context.close()


@pytest.fixture(scope="module")
def record_address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report on the project's own record."""
    return (report_on_the_record(tmp_path_factory) / "report" / "index.html").as_uri()


CLIPPED = """
[...document.querySelectorAll("table")].filter((table) => {
  const box = table.parentElement, cells = [...table.querySelectorAll("th, td")].filter((cell) => cell.offsetParent);
  const [left, right] = [box.getBoundingClientRect().left, box.getBoundingClientRect().right];
  return box.scrollWidth > box.clientWidth || right > innerWidth || cells.some((cell) => {
    const at = cell.getBoundingClientRect();
    return at.left < left - 1 || at.right > right + 1 || cell.scrollWidth > cell.clientWidth + 1;
  });
}).map((table) => table.id || table.className)
"""


@pytest.mark.parametrize("width", [1400, 1920, 390])
def test_no_table_and_no_entry_is_clipped(browser: Browser, record_address: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(record_address)
    for folded in (True, False):
        if not folded:
            unfold(page)
        assert page.evaluate(CLIPPED) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    for entry in page.locator("nav a").all():
        box = entry.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    # Where headings are not shown above the columns, each cell says its own.
    heads = page.locator("#table-ranks thead").is_visible()
    label = page.locator("#table-ranks td").first.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert heads != ("Copying" in label)
    page.close()


def test_an_open_section_takes_the_whole_width(browser: Browser, record_address: str) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(record_address)
    section = page.locator("#psmnist")
    assert (box := section.bounding_box()) is not None
    assert box["width"] < 640
    section.locator("summary").first.click()
    expect(section.locator("text.label").first).to_be_visible()
    assert (box := section.bounding_box()) is not None
    assert box["width"] > 1200
    chart = section.locator("svg[tabindex]")
    right = chart.evaluate("svg => svg.getBoundingClientRect().right")
    assert (
        max(chart.locator("text.label").evaluate_all("all => all.map(one => one.getBoundingClientRect().right)"))
        <= right
    )
    page.close()


def test_the_first_screen_and_the_length_of_the_page(browser: Browser, record_address: str) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(record_address)
    assert page.evaluate("document.documentElement.scrollHeight") <= 10 * 900
    assert page.locator(".lead li").count() == 3
    for first in (".lead", "#figure-overview", "#table-ranks"):
        box = page.locator(first).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, first
    assert "`" not in page.locator("main").inner_text()
    assert not re.search(r"\b0\.0000\b", page.locator("main").inner_text())
    page.close()


def test_pictures_follow_light_and_dark(browser: Browser, record_address: str) -> None:
    """As the system wants it, and as the button says; the background is that of the page."""
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
    page.goto(record_address)
    pictures = page.locator("figure picture")
    count = pictures.count()
    assert count == 5  # lengths, starts, and the spectrum in three settings
    unfold(page)

    def expect_dark(wanted: bool) -> None:
        """The browser changes a picture a little later (and the page's policy forbids to wait for it in the page)."""
        same = "all => all.map(one => one.querySelector('img').currentSrc === one.querySelector('source').srcset)"
        for _ in range(100):
            if pictures.evaluate_all(same) == [wanted] * count:
                break
            page.wait_for_timeout(50)
        assert pictures.evaluate_all(same) == [wanted] * count

    expect_dark(False)
    page.emulate_media(color_scheme="dark")
    expect_dark(True)
    page.get_by_role("button", name="Change to light colors").click()
    expect_dark(False)
    page.get_by_role("button", name="Change to dark colors").click()
    expect_dark(True)
    assert pictures.locator("img").first.evaluate("image => getComputedStyle(image).backgroundColor") == (
        "rgba(0, 0, 0, 0)"
    )
    page.close()


def test_rows_of_a_narrow_table_are_blocks_of_two_columns(browser: Browser, record_address: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(record_address)
    for table in ("#table-ranks", "#table-copying-paper-brief"):
        row = page.locator(f"{table} tbody tr").first
        name, (first, second, third) = row.locator("th"), (row.locator("td").nth(k) for k in range(3))
        head, one, two, three, whole = (each.bounding_box() for each in (name, first, second, third, row))
        assert head
        assert one
        assert two
        assert three
        assert whole
        assert head["width"] == pytest.approx(whole["width"])  # the name spans both columns
        assert one["y"] == two["y"] >= head["y"] + head["height"]
        assert one["width"] == two["width"] == three["width"]
        assert (three["x"], three["y"] > one["y"]) == (one["x"], True)
    page.close()


def test_what_is_said_is_aligned(browser: Browser, record_address: str) -> None:
    """What our runs show and what the paper says begin at one line, also where they go on; side by side at two."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(record_address)
    lines = "all => all.flatMap(one => [...one.lastElementChild.getClientRects()].map(box => Math.round(box.left)))"
    assert len(set(page.locator("main > section .said").evaluate_all(lines))) == 1
    assert len(set(page.locator(".folded .said").evaluate_all(lines))) == 2
    page.close()


def test_the_contents_mark_where_the_reader_is(page: Page) -> None:
    here = page.locator("nav a[aria-current]")
    expect(here).to_have_text("Summary")
    page.locator("#denoise h2").evaluate("heading => heading.scrollIntoView({behavior: 'instant'})")
    expect(here).to_have_text("Denoise")
    page.evaluate("scrollTo({top: document.body.scrollHeight, behavior: 'instant'})")
    expect(here).to_have_text("Cost")


def test_a_link_to_evidence_opens_it(page: Page) -> None:
    evidence = page.locator("#C1-copying-paper")
    expect(evidence).to_be_hidden()
    page.locator('#copying a[href="#C1-copying-paper"]').click()
    expect(evidence).to_be_visible()
    expect(evidence).to_be_in_viewport()
