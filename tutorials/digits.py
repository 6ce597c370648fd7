"""A small classifier of handwritten digits: two convolutions and a linear layer, 9978 parameters.

In: grey images ``x: f32[B,1,8,8]`` with values in 0..1. Out: one score per digit, ``f32[B,10]``.
``train_digits.py`` made the weights in ``digits.safetensors``; the names are torch.nn's, so they
load unchanged. Compile it to C, check it and time it with

    fxlite compile tutorials/digits.py:Digits --input "x=f32[B,1,8,8]" \\
        --weights tutorials/digits.safetensors --backend c -o out/
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fxlite as fx
from fxlite import nn

WEIGHTS = Path(__file__).with_name("digits.safetensors")


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(32 * 4 * 4, 10)

    def forward(self, x):
        x = np.maximum(self.bn1(self.conv1(x)), 0)  # [B,16,8,8]
        x = np.maximum(self.bn2(self.conv2(x)), 0)  # [B,32,8,8]
        x = self.pool(x)  # [B,32,4,4]
        return self.fc(x.reshape(-1, 32 * 4 * 4))


def trained():
    """The model with its trained weights, ready for inference."""
    model = Digits()
    model.load_state_dict(fx.load_safetensors(WEIGHTS))
    return model.eval()


def held_out():
    """scikit-learn's digits that the training did not see: images f32[359,1,8,8], labels [359].

    Every fifth of the 1797 images is held out, beginning with the fifth."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images = (data.images / 16).astype(np.float32)[:, None]
    return images[4::5], data.target[4::5]
