"""The documentation site, built by `make docs`: Sphinx, Markdown by MyST, the theme Furo.

A page asks nothing of other hosts: Furo has no fonts from elsewhere, and formulas are turned into MathML while the site
is built (latex2mathml), which browsers show without a script. What is said in the code is not said again here: the
decisions and claims are taken from `goru.lab.paper`, the results from the record, by the directives at the end of this
file.
"""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, ClassVar

import latex2mathml.converter
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from goru.lab import paper
from goru.lab.paper import columns
from goru.lab.report import markdown, record

project = "goru"
version = release = installed_version("goru")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_typehints = "none"  # they are in the signature
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "extra_repr"}
napoleon_custom_sections = ["Shape"]
napoleon_use_ivar = True
default_role = "code"  # of docstrings: a name in backticks is code
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3
exclude_patterns = ["_static"]
nitpicky = True
# Of other packages there is no inventory: the build asks nothing of the network. Names of goru have to be there.
nitpick_ignore_regex = [(r"py:.*", r"(?!goru\.).*")]
# A name in the contents without a page is let pass; a page that is missing from the contents is an error all the same.
suppress_warnings = ["toc.not_readable"]

html_theme = "furo"
html_title = "goru"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_math_renderer = "mathml"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#8a3b12", "color-brand-content": "#8a3b12"},
    "dark_css_variables": {"color-brand-primary": "#f0a36b", "color-brand-content": "#f0a36b"},
}


def show_inline_formula(translator: Any, node: nodes.math) -> None:
    translator.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def show_formula(translator: Any, node: nodes.math_block) -> None:
    formula = latex2mathml.converter.convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula">{formula}</div>\n')
    raise nodes.SkipNode


class Decisions(SphinxDirective):
    """What was decided for each experiment, from the code: one place for `goru show`, the report and this page."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        parts = {"**All experiments**": paper.SHARED_DECISIONS}
        for name, one in paper.EXPERIMENTS.items():
            where = f"; in the paper {one.paper.shown_in.lower()}" if one.paper else ""
            parts[f"**{one.title}** (`goru show {name}`{where})"] = one.decisions
        lines = [["", heading, "", *(f"- {_plain(text)}" for text in texts)] for heading, texts in parts.items()]
        return self.parse_text_to_nodes("\n".join(line for part in lines for line in part))


class Costs(SphinxDirective):
    """What of the paper an experiment is, how it is run, and what one seed of it costs."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        rows = []
        for name, one in paper.EXPERIMENTS.items():
            where = _plain(one.paper.shown_in) if one.paper else ""
            rows.append(f"| {where} | `goru reproduce {name}` | `{name}-paper.*` | {one.seconds / 3600:.1f} |")
        heads = ["| in the paper | command | in the report | core hours, one seed |", "|---|---|---|--:|"]
        return self.parse_text_to_nodes("\n".join([*heads, *rows]))


class Claims(SphinxDirective):
    """The paper's claims as the laboratory knows them."""

    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        claims = [(name, claim) for name, one in paper.EXPERIMENTS.items() for claim in one.claims]
        rows = [f"| {claim.name} | `{name}` | {_plain(claim.text)} |" for name, claim in claims]
        return self.parse_text_to_nodes("\n".join(["| | experiment | claim |", "|---|---|---|", *rows]))


class Results(SphinxDirective):
    """The numbers and verdicts of the project's own record; or the table of one group of runs, such as `copying-paper`,
    with the columns that the content names, one in a line."""

    optional_arguments: ClassVar[int] = 1
    has_content: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        groups = record.full_size(Path(__file__).parent.parent / "results")
        if not self.arguments:
            return self.parse_text_to_nodes(markdown.numbers(groups))
        (table,) = [columns.results(group) for group in groups if group.name == self.arguments[0]]
        chosen = ["model", *self.content]
        places = [table.headings.index(heading) for heading in chosen]
        rows = [[texts[place] for place in places] for texts in table.texts]
        return self.parse_text_to_nodes(markdown.rows_of(chosen, rows, table.words))


def _plain(text: str) -> str:
    """A sentence of the code as Markdown: outside of `names`, signs that mean something there are not meant to."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_$|<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def link_to_torch(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Names of torch in docstrings lead to its documentation."""
    where = r"`torch.nn.\1 <https://docs.pytorch.org/docs/stable/generated/torch.nn.\1.html>`__"
    lines[:] = [re.sub(r"`torch\.nn\.([A-Z]\w+)`", where, line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (show_inline_formula, None), (show_formula, None))
    app.connect("autodoc-process-docstring", link_to_torch)
    app.add_directive("decisions", Decisions)
    app.add_directive("costs", Costs)
    app.add_directive("claims", Claims)
    app.add_directive("results", Results)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
