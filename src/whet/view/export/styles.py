"""The style sheet of exported pages. It holds its font: browsers load no font from beside a page that is a file."""

import base64
import re

from whet.view.assets import Assets

FONT = "inter.woff2"
_REFERENCE = re.compile(rf'url\("?{re.escape(FONT)}[^)]*\)')


def read_styles() -> str:
    """All styles of the pages, in one text."""
    assets = Assets()
    font = base64.b64encode(assets.body(FONT)).decode()
    return _REFERENCE.sub(f'url("data:font/woff2;base64,{font}")', assets.body("whet.css").decode())
