"""Programs in C are compiled as in the tests of passes: ops are tested by values, too."""

from tests.passes.conftest import compiled_as_it_stands

__all__ = ["compiled_as_it_stands"]
