"""The pictures in the documents are what is drawn now."""

from __future__ import annotations

from tests.pictures import FOLDER, pictures


def test_the_pictures_are_up_to_date() -> None:
    drawn = pictures()
    assert sorted(file.name for file in FOLDER.iterdir()) == sorted(drawn)
    for name, text in drawn.items():
        assert (FOLDER / name).read_text() == text, "run python -m tests.pictures"
        assert len(text) < 100_000
