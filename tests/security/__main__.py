"""Every text at every place of a saved graph: ``python -m tests.security [--texts N]``.

Prints, as JSON, how many files were read and how many outputs compared; exits with 1 where an
output differs from that of a harmless file. About fifteen minutes for all texts.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.security.breakouts import PRINTED, accepted, compare, groups, load
from tests.security.specimen import BREAKOUTS


def main() -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.security", description=__doc__)
    parser.add_argument("--texts", type=int, default=len(BREAKOUTS), help="how many texts (all)")
    texts = BREAKOUTS[: parser.parse_args().texts]
    places, files, refused, compared, different = groups(), 0, 0, 0, 0
    for text in texts:
        for paths in places.values():
            files += 1
            refused += load(dict.fromkeys(paths, text)) is None
        if text in PRINTED:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    compared += compare(dict.fromkeys(accepted(), text), Path(folder))
                except AssertionError as error:
                    different += 1
                    print(f"{text!r}: {error}", file=sys.stderr)
    print(
        json.dumps(
            {
                "texts": len(texts),
                "places": len(places),
                "files": files,
                "refused": refused,
                "outputs compared": compared,
                "different": different,
            }
        )
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
