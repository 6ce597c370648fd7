"""Train ``digits.py`` with torch and write ``digits.safetensors``.

torch does the training because fxlite has no gradients yet; the weights need no conversion.
Data: scikit-learn's ``load_digits`` (1797 images of 8x8 pixels). Every fifth image is held out;
the other 1438 train the model, shifted at random by up to one pixel. Seed, number of epochs and
learning rate are fixed and were not chosen by the held-out images. Takes about half a minute:

    python tutorials/train_digits.py
"""

from __future__ import annotations

import numpy as np
import torch
from digits import WEIGHTS, held_out
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

SEED, EPOCHS, BATCH, RATE = 0, 60, 64, 3e-3


class Digits(nn.Module):
    """The model of ``digits.py`` in torch."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(32 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = self.pool(x)
        return self.fc(x.reshape(-1, 32 * 4 * 4))


def shifted(images):
    """Each image moved by -1, 0 or 1 pixels in both directions, zeros coming in."""
    padded = F.pad(images, (1, 1, 1, 1))
    rows, columns = torch.randint(0, 3, (2, len(images), 1))
    pixels = torch.arange(8)
    which = torch.arange(len(images))[:, None, None]
    return padded[which, 0, (rows + pixels)[:, :, None], (columns + pixels)[:, None, :]][:, None]


def train():
    torch.manual_seed(SEED)
    data = load_digits()
    part = np.arange(len(data.images)) % 5 != 4
    images = torch.tensor(data.images[part, None] / 16, dtype=torch.float32)
    labels = torch.tensor(data.target[part])
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
    for epoch in range(EPOCHS):
        for chosen in torch.randperm(len(images))[: steps // EPOCHS * BATCH].split(BATCH):
            loss = F.cross_entropy(model(shifted(images[chosen])), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss of the last batch {loss.item():.4f}")
    return model.eval()


if __name__ == "__main__":
    model = train()
    images, labels = held_out()
    with torch.no_grad():
        guesses = model(torch.from_numpy(images)).argmax(1).numpy()
    right = int((guesses == labels).sum())
    print(f"held out: {right} of {len(labels)} right, {right / len(labels):.2%}")
    save_file(model.state_dict(), WEIGHTS)
    print(f"{WEIGHTS.name}: {WEIGHTS.stat().st_size / 1000:.0f} kB")
