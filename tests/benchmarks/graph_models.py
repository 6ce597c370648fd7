"""The programs of the graph benchmark, written once for torch and for fxlite.

In: a library's ``nn`` and ``nn.functional``. Out: a module of its own, with the same layers called
in the same order. Channels are few: a graph is as large as its number of calls. (Annotations are
not postponed here: torch.fx keeps them and cannot pickle them as text.)
"""

from typing import Any

TOKENS, HEADS, WIDTH = 16, 4, 32


def resnet50(nn: Any, F: Any) -> Any:
    """ResNet-50: 3, 4, 6 and 3 bottleneck blocks."""

    class Bottleneck(nn.Module):  # type: ignore[misc]
        def __init__(self, inside: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(4 * width)
            self.downsample = nn.Sequential()
            if stride != 1 or inside != 4 * width:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inside, 4 * width, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * width)
                )

        def forward(self, x: Any) -> Any:
            y = F.relu(self.bn1(self.conv1(x)))
            y = F.relu(self.bn2(self.conv2(y)))
            return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))

    class ResNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 4, 7, stride=2, padding=3, bias=False)
            self.bn1, self.maxpool = nn.BatchNorm2d(4), nn.MaxPool2d(3, stride=2, padding=1)
            inside, stages = 4, []
            for stage, depth in enumerate((3, 4, 6, 3)):
                width = 4 * 2**stage
                blocks = []
                for block in range(depth):
                    stride = 2 if stage and not block else 1
                    blocks.append(Bottleneck(inside, width, stride))
                    inside = 4 * width
                stages.append(nn.Sequential(*blocks))
            self.stages = nn.Sequential(*stages)
            self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(inside, 10)

        def forward(self, x: Any) -> Any:
            y = self.stages(self.maxpool(F.relu(self.bn1(self.conv1(x)))))
            return self.fc(self.avgpool(y).reshape(1, -1))

    return ResNet().eval()


def bert(nn: Any, F: Any) -> Any:
    """A BERT encoder of 12 layers on one sequence of ``TOKENS`` embedded tokens."""

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.dense = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def heads(self, x: Any) -> Any:
            return x.reshape(1, TOKENS, HEADS, WIDTH // HEADS).swapaxes(1, 2)

        def forward(self, x: Any) -> Any:
            q, k = self.heads(self.query(x)), self.heads(self.key(x))
            scores = q @ k.swapaxes(2, 3) / (WIDTH // HEADS) ** 0.5
            mixed = F.softmax(scores, dim=-1) @ self.heads(self.value(x))
            x = self.norm1(x + self.dense(mixed.swapaxes(1, 2).reshape(1, TOKENS, WIDTH)))
            return self.norm2(x + self.down(F.gelu(self.up(x))))

    return nn.Sequential(*(Layer() for _ in range(12))).eval()


def chain(relu: Any, nodes: int) -> Any:
    """A function that computes relu(x) + 1 again and again, ``nodes`` calls in all."""

    def program(x: Any) -> Any:
        for _ in [()] * (nodes // 2):  # no range, which fxlite would keep as a loop
            x = relu(x) + 1
        return x

    return program


#: Model -> shape of its input
MODELS = {"resnet50": (1, 3, 32, 32), "bert": (1, TOKENS, WIDTH)}
