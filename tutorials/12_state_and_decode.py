"""State: a small language model that keeps its cache as a buffer writes text, as one C file.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/12_state_and_decode.py

It needs a C compiler.
"""

# %% [markdown]
# # 1. A model with a memory
# It is attention over everything read so far: what followed characters like the last ones? The model
# has not been trained; its cache is all that it knows. A key is made of the last five characters,
# a value is the character that came next. It is plain NumPy that assigns to buffers and writes into
# them: the cache, how much of it is filled, the last characters, and the state of its random numbers.

# %%
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import fxlite as fx
from fxlite import nn, passes
from fxlite.nn import functional as F

LENGTH, SIZE, LAST = 4096, 32, 5
LETTERS = " abcdefghijklmnopqrstuvwxyz.,'-\n"


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Parameter(np.eye(SIZE, dtype=np.float32))
        nearer = np.repeat(np.float32([1, 2, 4, 8, 16]), SIZE)  # later characters count for more
        self.register_buffer("nearer", nearer)
        self.register_buffer("keys", np.zeros((LENGTH, LAST * SIZE), np.float32))
        self.register_buffer("values", np.zeros((LENGTH, SIZE), np.float32))
        self.register_buffer("context", np.zeros(LAST * SIZE, np.float32))
        self.register_buffer("count", np.zeros((), np.int64))
        self.register_buffer("seed", np.array(1, np.int64))

    def forward(self, letter):
        """The letter that may come after this one."""
        self.keys[self.count] = self.context
        self.values[self.count] = self.letters[letter]
        self.count += 1
        self.context[:-SIZE] = self.context[SIZE:].copy()
        self.context[-SIZE:] = self.letters[letter]
        scores = self.keys @ (self.context * self.nearer)
        seen = np.arange(LENGTH) < self.count
        chances = F.softmax(np.where(seen, scores, -np.inf).astype(np.float32), -1) @ self.values
        self.seed = self.seed * 16807 % 2147483647  # Park and Miller 1988
        coin = self.seed.astype(np.float32) / 2147483647
        return np.argmax(np.cumsum(chances) > coin * chances.sum())


TEXT = """\
the cat sat on the mat and looked at the dog. the dog sat on the log and looked at the cat.
the cat had a hat, and the hat was on the mat. the dog had a bone, and the bone was in the log.
so the cat and the dog sat and looked, and the mat and the log were as they had always been.
"""


def written(model, length=150):
    """The text that a model writes after it has read `TEXT`."""
    for letter in TEXT:
        last = model(np.array(LETTERS.index(letter)))
    found = []
    for _ in range(length):
        found.append(LETTERS[int(last)])
        last = model(np.array(last))
    return "".join(found)


story = written(Reader())
print(story)

# %% [markdown]
# # 2. The graph
# Each buffer that `forward` changes becomes an input that no caller gives, and one more result, which
# the last line names. A call takes the value from the module and stores the new one there; the buffers
# of the program itself stay as they are.

# %%
gm = fx.symbolic_trace(Reader(), "i64[]")
print(gm.graph)
print("graph writes the same:", written(gm) == story)
print("characters that it has seen:", gm.get_buffer("count"))

# %% [markdown]
# Without its interface the graph is a plain function: states in, new states out.

# %%
pure = fx.symbolic_trace(Reader(), "i64[]")
pure.graph.interface = None
arrays = {target: Reader().get_attribute(path) for target, path in gm.states}
letter, *after = pure(np.array(1), *(arrays[p.target] for p in pure.graph.placeholders[1:]))
print("states in:", len(arrays), "states out:", len(after))

# %% [markdown]
# # 3. C
# The states are a struct, which the caller owns; it begins with what the buffers hold when the
# model is compiled, so the model is traced again. A step writes one row of each cache in place,
# not the whole cache; it moves only the keys and values that it reads.

# %%
fn = fx.compile(Reader(), "i64[]", backend="c", threads=1)
header, source = fn.sources["reader.h"], fn.sources["reader.c"]
print(header[header.index("struct reader_state {") : header.index("/** Whether a call")])
print(source[source.index("int reader_run(") :])
bytes_of = passes.kernel_bytes(fn.kernels)
cache = sum(gm.get_buffer(name).nbytes for name in ("keys", "values"))
print(f"a step moves {sum(bytes_of.values()):,} bytes; the cache has {cache:,}")

# %% [markdown]
# # 4. One file
# The emitted files and a main function are put together. The weights are 4 KB: they are written as
# numbers. The program reads the text from its input and continues it.

# %%
MAIN = """
#include <stdio.h>
#include <string.h>

static const _Alignas(64) unsigned char weights[] = {WEIGHTS};
static struct reader_state state;
static _Alignas(64) unsigned char workspace[1 << 20];
static const char letters[] = LETTERS;

int main(void) {
    fx_error error;
    int64_t next = 0;
    reader_state_init(&state, weights);
    for (int c = getchar(); c != EOF; c = getchar()) {
        const int64_t letter = strchr(letters, c) - letters;
        if (reader_run(&letter, &state, &next, weights, workspace, 1, &error)) return 1;
    }
    for (int i = 0; i < 150; ++i) {
        putchar(letters[next]);
        const int64_t letter = next;
        if (reader_run(&letter, &state, &next, weights, workspace, 1, &error)) return 1;
    }
    return 0;
}
"""


def whole(folder, name):
    """The file `name`, with the files of the folder that it includes put in place."""
    lines = (folder / name).read_text().splitlines()
    return "\n".join(whole(folder, line.split('"')[1]) if line.startswith('#include "') else line for line in lines)


with tempfile.TemporaryDirectory() as work:
    folder = Path(work, "reader")
    fn.save(folder)
    numbers = ",".join(map(str, (folder / "reader_weights.bin").read_bytes()))
    spelled = '"' + LETTERS.replace("\n", "\\n") + '"'
    main = MAIN.replace("WEIGHTS", numbers).replace("LETTERS", spelled)
    one = Path(work, "storyteller.c")
    one.write_text(whole(folder, "reader.c") + main)
    subprocess.run(["cc", "-std=c11", "-O2", "-fwrapv", one, "-o", Path(work, "storyteller"), "-lm"], check=True)
    done = subprocess.run([Path(work, "storyteller")], input=TEXT, capture_output=True, text=True, check=True)
print(done.stdout)
print("C writes the same:", done.stdout == story)
