"""Pages that hold everything they show: templates of a package, with the style that all pages share."""

from __future__ import annotations

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def page_environment(package: str) -> Environment:
    """Templates that lie beside the modules of `package`; `page.css` is there to be included. Texts are escaped."""
    return Environment(
        loader=ChoiceLoader([PackageLoader(package, "."), PackageLoader("stream_calib.pages", ".")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
