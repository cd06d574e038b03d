"""Sphinx configuration. Pages are plain Markdown; tables of facts are read off the package."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))
sys.path.insert(0, str(Path(__file__).parents[1]))

# Avalanche imports qpsolvers, which warns on import when it finds no solver.
warnings.filterwarnings("ignore", message="no QP solver found on your system")

import cl_graft  # noqa: E402  before anything imports torchvision

project = "cl_graft"
author = "the cl_graft developers"
project_copyright = "the cl_graft developers"
version = release = cl_graft.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "from_the_package",
    "example_notebooks",
    "collapsed_navigation",
]
exclude_patterns = ["_build", "ISSUE_TEMPLATE"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
myst_heading_anchors = 3

nb_execution_mode = "off"  # `make notebooks` runs them
nb_merge_streams = True

html_theme = "furo"
html_title = f"cl_graft {version}"
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["tables.css"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

copybutton_prompt_text = "$ "
