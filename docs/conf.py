"""The site: ``make docs``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

import inference_lab

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))

project = "inference-lab"
author = "The inference-lab authors"
copyright = author
version = release = inference_lab.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "which_solver",
]
# What takes how long is of no use to readers, and its pages need a network.
exclude_patterns = ["_build", "sg_execution_times.rst", "gallery/sg_execution_times.rst"]
templates_path: list[str] = []
default_role = "py:obj"

html_theme = "furo"
html_title = "inference-lab"
html_theme_options = {"navigation_with_keys": True}
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"
# A class opens with its purpose, not with a constructor of many arguments.
autodoc_class_signature = "separated"
autodoc_inherit_docstrings = False
napoleon_google_docstring = False
napoleon_custom_sections = ["Guarantees", "Complexity"]
napoleon_use_rtype = False

copybutton_exclude = ".linenos, .gp, .go"

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "matplotlib_animations": True,
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 1,
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
}

# Links that are checked from time to time only: ``make docs-links``.
linkcheck_timeout = 20
linkcheck_anchors = False


def _inline_math(writer: Any, node: nodes.math) -> None:
    """Write a formula as MathML, which browsers set without a script or a network."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block_math(writer: Any, node: nodes.math_block) -> None:
    """Write a displayed formula."""
    writer.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def _skip(app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out methods that scikit-learn writes, which refer to its own site."""
    return True if re.fullmatch(r"set_(fit|predict|score|transform)_request", name) else None


def _by_itself(app: Sphinx, page: str, template: str, context: Any, doctree: Any) -> None:
    """Leave out the font that animations of matplotlib ask the network for; see site.css."""
    font = r'<link rel="stylesheet"\s+href="https?://[^"]+">'
    context["body"] = re.sub(font, "", context.get("body", ""))


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas, and what is left out."""
    app.connect("autodoc-skip-member", _skip)
    app.connect("html-page-context", _by_itself)
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))
