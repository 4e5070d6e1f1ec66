"""The page: one file that holds its figures, its style and its script, and fetches nothing."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

import jinja2

from goru.lab import paper
from goru.lab.paper.columns import Table
from goru.lab.report import claims, costs
from goru.lab.report.claims import Verdict
from goru.lab.report.figures import Figure
from goru.lab.report.sections import Section

MARKS = {claims.REPRODUCED: "✓", claims.PARTLY: "◐", claims.NOT_REPRODUCED: "✗", claims.OPEN: "…"}


def render(
    sections: list[Section], verdicts: list[Verdict], cost: Table | None, problems: list[str], notices: list[str]
) -> str:
    """The page as HTML. Everything that runs have written goes through the template's escaping."""
    files = resources.files("goru.lab.report")
    style, script = (files.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["image"] = _image
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    only_small = all(variant.group.kind == "quick" for section in sections for variant in section.variants)
    claimed = claims.by_claim(verdicts)
    records = [record for section in sections for variant in section.variants for record in variant.group.records]
    run = {section.experiment.name for section in sections}
    return environment.from_string(files.joinpath("page.html.j2").read_text(encoding="utf-8")).render(
        # The script is named by its hash: nothing that finds its way into the page can run, nothing can be fetched.
        policy="default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        style=style,
        script=script,
        data={k: v for s in sections for variant in s.variants for k, v in variant.interactive().items()},
        sections=sections,
        claims=[one for one in claimed if one.main.variant],
        claims_without_runs=[one.claim.name for one in claimed if not one.main.variant],
        counts=[(status, sum(one.main.status == status for one in claimed)) for status in claims.STATUSES],
        heading=f"GORU: {'a small demonstration' if only_small else 'what reproduces, and what we found'}",
        learned=[sentence for section in sections for sentence in section.learned],
        marks=MARKS,
        classes={status: status.replace(" ", "-") for status in claims.STATUSES},
        finished=sum(record.finished for record in records),
        runs=len(records),
        only_small=only_small,
        not_run=[one for name, one in paper.EXPERIMENTS.items() if one.paper and name not in run],
        cost=cost,
        cost_rules=costs.HOW_COUNTED,
        rules=claims.HOW_JUDGED,
        problems=problems,
        notices=notices,
    )


def _image(figure: Figure) -> str:
    """A drawn figure as an address that holds it. In an image of its own, its names cannot meet another's."""
    if figure.photographic:
        return f"data:image/png;base64,{base64.b64encode(figure.png).decode()}"
    return f"data:image/svg+xml;base64,{base64.b64encode(figure.svg.encode()).decode()}"
