"""The digits classifier on images it was not trained on: every way to run it is equally right."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.oracle import compare
from tutorials import digits

pytest.importorskip("sklearn")

INPUT = "f32[B,1,8,8]"


@pytest.fixture(scope="module")
def model() -> Any:
    return digits.trained()


@pytest.fixture(scope="module")
def images_and_labels() -> Any:
    return digits.held_out()


@pytest.mark.parametrize("backend", ["python", "c"])
def test_accuracy_is_equal(model: Any, images_and_labels: Any, backend: str) -> None:
    images, labels = images_and_labels
    expected = model(images)
    function = fx.compile(model, x=INPUT, backend=backend)
    actual = function(images)
    compare(backend, actual, expected)
    eager_accuracy = np.mean(expected.argmax(axis=1) == labels)
    accuracy = np.mean(actual.argmax(axis=1) == labels)
    assert accuracy == eager_accuracy
    assert accuracy >= 0.97


def test_regenerated_python_in_a_folder(
    model: Any, images_and_labels: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = images_and_labels
    fx.symbolic_trace(model, x=INPUT).to_folder(str(tmp_path), "DigitsAgain")
    monkeypatch.syspath_prepend(tmp_path)
    again = importlib.import_module("digits_again").DigitsAgain.load()
    actual = again(images)
    np.testing.assert_array_equal(actual, model(images))
    assert np.mean(actual.argmax(axis=1) == labels) >= 0.97


@pytest.mark.parametrize("batch", [0, 1, 3, 64])
def test_one_compiled_function_for_every_batch(model: Any, images_and_labels: Any, batch: int) -> None:
    images = images_and_labels[0][:batch]
    function = fx.compile(model, x=INPUT, backend="c")
    compare("c", function(images), model(images))


def test_no_held_out_image_trains() -> None:
    from sklearn.datasets import load_digits

    data = load_digits()
    images, labels = digits.held_out()
    chosen = np.arange(len(data.images)) % 5 == 4  # train_digits.py trains on the complement
    assert images.shape == (359, 1, 8, 8) and images.max() == 1
    np.testing.assert_array_equal(images[:, 0] * 16, data.images[chosen])
    np.testing.assert_array_equal(labels, data.target[chosen])


def test_weights_are_those_of_the_torch_model(
    model: Any, images_and_labels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(Path(digits.__file__).parent)
    training = importlib.import_module("train_digits")
    from safetensors.torch import load_file

    twin = training.Digits()
    twin.load_state_dict(load_file(digits.WEIGHTS))
    images = images_and_labels[0]
    with torch.no_grad():
        expected = twin.eval()(torch.from_numpy(images)).numpy()
    compare("torch", model(images), expected)


def test_weights_are_small() -> None:
    assert digits.WEIGHTS.stat().st_size < 200_000
