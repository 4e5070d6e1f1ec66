"""The page: one self-contained HTML file with its figures, style and script."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

import jinja2
from markupsafe import Markup, escape

from goru.lab import paper
from goru.lab.paper.columns import Table
from goru.lab.report import claims, costs, figures, overview
from goru.lab.report.claims import Verdict
from goru.lab.report.figures import Figure
from goru.lab.report.sections import Section

MARKS = {claims.REPRODUCED: "✓", claims.PARTLY: "◐", claims.NOT_REPRODUCED: "✗", claims.OPEN: "…"}


def render(
    sections: list[Section], verdicts: list[Verdict], cost: Table | None, problems: list[str], notices: list[str]
) -> str:
    """The page as HTML. The template escapes everything that runs have written."""
    files = resources.files("goru.lab.report")
    style, charts, script = (
        files.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "charts.js", "page.js")
    )
    script = f"{charts}\n{script}"
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"image": _image, "names": _names, "linked": _linked}
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    groups = [variant.group for section in sections for variant in section.variants]
    only_small = all(group.kind for group in groups)
    claimed = claims.by_claim(verdicts)
    run = {section.experiment.name for section in sections}
    drawn = [
        variant
        for section in sections
        for variant in section.variants
        if variant.group in overview.main_groups(groups) and section.experiment.in_overview and variant.curve
    ]
    data = {k: v for s in sections for variant in s.variants for k, v in variant.interactive().items()}
    if drawn:
        data["overview"] = {"kind": "overview", "panels": [variant.group.name for variant in drawn]}
    return environment.from_string(files.joinpath("page.html.j2").read_text(encoding="utf-8")).render(
        # The policy allows only this script, by its hash: nothing injected can run, and nothing can be fetched.
        policy="default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        style=style,
        script=script,
        data=data,
        sections=sections,
        findings=overview.findings(groups, verdicts),
        answers=overview.answers(groups),
        ranking=overview.ranking(groups),
        overview=figures.overview([variant.group for variant in drawn]) if drawn else None,
        claims=[one for one in claimed if one.main.variant],
        claims_without_runs=[one.claim.name for one in claimed if not one.main.variant],
        counts=[(status, sum(one.main.status == status for one in claimed)) for status in claims.STATUSES],
        heading=f"GORU: {'a small demonstration' if only_small else 'what reproduces, and what we found'}",
        learned=[sentence for section in sections for sentence in section.learned],
        marks=MARKS,
        decisions=paper.decisions,
        classes={status: status.replace(" ", "-") for status in claims.STATUSES},
        runs_done=overview.runs_done(groups),
        only_small=only_small,
        not_run=[one for name, one in paper.EXPERIMENTS.items() if one.paper and name not in run],
        cost=cost,
        cost_rules=costs.HOW_COUNTED,
        rules=claims.HOW_JUDGED,
        problems=problems,
        notices=notices,
    )


def _names(text: str) -> Markup:
    """Text with `names` as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _linked(sentence: overview.Sentence) -> Markup:
    """A sentence with its links."""
    link = Markup('<a href="#{}">{}</a>')
    parts = (link.format(part.anchor, part.text) if isinstance(part, overview.Link) else part for part in sentence)
    return Markup("").join(parts)


def _image(figure: Figure) -> str:
    """A figure as a data URL. As a separate image, its ids cannot clash with those of another."""
    kind, content = ("png", figure.png) if figure.photographic else ("svg+xml", figure.svg.encode())
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
