"""The documentation site: `pip install -e ".[docs]" && sphinx-build -W docs docs/_build`."""

import qddot

project = "qddot"
author = "The qddot authors"
release = qddot.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"qddot {release}"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
# pages also stand in the repository, where they link to files beside them
suppress_warnings = ["myst.xref_missing"]
default_role = "code"


def _plain(app, what, name, obj, options, lines):
    """Docstrings are Markdown: tables of a module are read in its file, and bars are no substitutions."""
    lines[:] = [] if what == "module" else [line.replace("|", "\\|") for line in lines]


def setup(app):
    app.connect("autodoc-process-docstring", _plain)
