"""``python -m fxlite``: the command line."""

import sys

from fxlite.cli import main

sys.exit(main())
