"""The documentation site: `pip install -e ".[docs]" && sphinx-build -W docs docs/_build`."""

import inspect

from sphinx.util.inspect import stringify_signature

import qddot

project = "qddot"
author = copyright = "The qddot authors"
release = qddot.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"qddot {release}"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# pages also stand in the repository, where they link to files beside them
suppress_warnings = ["myst.xref_missing"]
default_role = "code"


def _plain(app, what, name, obj, options, lines):
    """Docstrings are Markdown: tables of a module are read in its file, and bars are no substitutions."""
    lines[:] = [] if what == "module" else [line.replace("|", "\\|") for line in lines]


def _signature(app, what, name, obj, options, signature, return_annotation):
    """Annotations as they are written: ArrayLike instead of all that it stands for."""
    if what not in ("function", "method") or not inspect.isfunction(obj):
        return None
    written = inspect.signature(obj)
    parameters = list(written.parameters.values())
    if what == "method" and parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    return stringify_signature(written.replace(parameters=parameters)), ""


def setup(app):
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-docstring", _plain)
