"""What builds a C bundle: a Makefile, CMake's file, pkg-config's, and the C that only some builds
take: weights inside the program, and the choice of the processor at run time.

In: the name of a model, its header. Out: files by name, made of those in ``model``.
"""

from __future__ import annotations

import re
from importlib.resources import files

from fxlite.codegen.c.text.template_text import parameter_names
from fxlite.codegen.c.tiles.library import needed
from fxlite.codegen.kernel.text import filled

MODEL = files("fxlite.codegen.c").joinpath("model")
"""The folder of files that are the same for all models, but for words such as its name."""
_FILES = ("Makefile", "CMakeLists.txt", "MODEL.pc.in", "MODEL_embedded.c", "MODEL_portable.c")


def build_files(name: str, header: str, architecture: str, version: str) -> dict[str, str]:
    """File name -> text. ``architecture`` is the compiler's flag for a processor, ``version``
    fxlite's."""
    functions = _functions(name, header)
    choices = []
    for result, function, parameters in functions:
        names = "" if parameters == "void" else ", ".join(parameter_names(parameters))
        choices.append(f"CHOICE({result}, {function},\n    ({parameters}),\n    ({names}))")
    words = {
        "FUNCTIONS": " ".join(function for _, function, _ in functions),
        "ARCHITECTURE": architecture,
        "FX_VERSION": version,
        "HELPERS": needed("processor_has").rstrip(),
        "CHOICES": "\n\n".join(choices),
        "MODEL": name,
    }
    return {file.replace("MODEL", name): filled(MODEL.joinpath(file), words) for file in _FILES}


def _functions(name: str, header: str) -> list[tuple[str, str, str]]:
    """Result type, name and parameters of each function that a header declares."""
    code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    found = re.findall(rf"^(\w[\w ]*?[ *]+)({name}_\w+)\(([^)]*)\);", code, re.MULTILINE)
    return [(result.strip(), function, " ".join(p.split())) for result, function, p in found]
