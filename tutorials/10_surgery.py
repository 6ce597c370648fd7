"""Looking into a trained model and changing it: probes, pruning, adapters, layers.

A script in cells (`# %%`), for an editor or notebook that knows them, or to run from top to bottom:

    python tutorials/10_surgery.py

It needs no C compiler.
"""

# %% [markdown]
# # 1. Probes
# What values occur inside the model? These are statistics of all of them on some images: ranges,
# means, and how many numbers a relu set to zero.

# %%
import numpy as np
from digits import held_out, trained

import fxlite as fx
from fxlite import nn, passes

images, labels = held_out()
gm = fx.symbolic_trace(trained(), x="f32[B,1,8,8]")
print(passes.activation_statistics(gm, [images[:100]]))

# %% [markdown]
# A tap passes the values of some nodes to a function whenever the module runs, here to count how
# often each channel of the second relu is active. Compiled code does the same. `untap` removes the tap.

# %%
alive = np.zeros(32)


def count(name, value):
    alive[:] += (value > 0).mean(axis=(0, 2, 3))


tapped = passes.tap(gm, "#relu_1", count)
tapped(images[:100])
print("least active channels:", *np.argsort(alive)[:5])
assert passes.untap(tapped).graph == gm.graph

# %% [markdown]
# # 2. Pruning
# 30 % of the channels are removed, those with the smallest weights, together with all that depends on
# them: the parameters of the norms and the features after the flatten. Weights keep their names. A pass
# that is meant to change results says so, and a metric bounds the loss: beyond it, the pass is undone.
# The weights are not trained further here, which would be the next step.


# %%
def accuracy(module):
    return (module(images).argmax(axis=1) == labels).mean()


print(f"accuracy before: {accuracy(gm):.4f}")
prune = passes.prune_channels.with_options(amount=0.3)
for drop in (0.001, 0.5):
    checked = prune.with_exactness(passes.changes(accuracy, drop))
    try:
        manager = passes.PassManager([checked])
        small = manager(gm)
        print(manager.report[0].verification)
    except passes.VerificationError as error:
        print("refused:", error)
print(small.meta["resized"])
count_of = {m: sum(v.size for v in m.state_dict().values()) for m in (gm, small)}
print(f"{count_of[gm]} numbers became {count_of[small]}; accuracy {accuracy(small):.4f}")

# %% [markdown]
# What cannot shrink is refused, with the reason, before anything changes.

# %%
try:
    passes.resize(gm, "linear", 1, keep=range(5))
except fx.errors.ArgumentError as error:
    print("refused:", error)

# %% [markdown]
# # 3. Adapters
# LoRA adds two small weights to the last layer, which change nothing at first. Here B is set to
# numbers as training would find them, then the adapter is merged into the weight.

# %%
adapted = passes.add_lora(gm, "linear", rank=2, alpha=4)
print(sorted(adapted.state_dict().keys() - gm.state_dict().keys()))
assert (adapted(images) == gm(images)).all()
up = np.random.default_rng(0).standard_normal((10, 2)).astype(np.float32)
adapted.set_attribute("fc.lora_B.weight", nn.Parameter(up))
merged = passes.merge_lora(adapted)
print("merged:", np.allclose(merged(images), adapted(images), atol=1e-3))
assert merged.graph == gm.graph and passes.remove_lora(adapted).graph == gm.graph

# %% [markdown]
# # 4. Other layers
# Each relu is replaced by another activation, and one layer by three, whose weights are stored
# under its path. Then two of the three share a weight.

# %%
smooth = passes.swap(gm, where="relu", layer=nn.GELU())
print(f"accuracy with gelu: {accuracy(smooth):.4f}")
layers = nn.Sequential(nn.Linear(512, 10), nn.Linear(10, 10), nn.Linear(10, 10))
deep = passes.swap(gm, where="fc", layer=layers)
print(sorted(deep.state_dict().keys() - gm.state_dict().keys()))
tied = passes.tie_weights(deep, "fc.1.weight", "fc.2.weight")
assert tied.fc[1].weight is tied.fc[2].weight
assert passes.untie_weights(tied, "fc.1.weight").graph == deep.graph

# %% [markdown]
# # 5. Two stages
# The convolutions run on one machine, the classifier on another: each part is a module of its own,
# which can be compiled and saved.

# %%
(flatten,) = gm.graph.find("reshape")
behind, seen = set(), False
for node in gm.graph.nodes:
    seen = seen or node is flatten.last
    behind |= {node} if seen else set()
stages = passes.split_module(gm, None, lambda node: int(node in behind))
features = stages.submod_0(images)
print("between the stages:", features.dtype, features.shape)
print("stages agree:", bool((stages.submod_1(features) == gm(images)).all()))
