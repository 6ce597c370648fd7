"""Graph queries: finding nodes by what they are and what they read, in the manner of CSS selectors.

In: a graph and a text, ``graph.find("conv2d > batch_norm[training=False] > relu")``. Out: a list of
:class:`QueryMatch`. The same language is behind ``fxlite trace --query`` and ``fxlite check``.

============================== =====================================================================
a step: one node
============================== =====================================================================
``conv2d``                     a call of that op; NumPy's and torch's names work, too (``multiply``)
``placeholder get_attr``       an input, a weight; ``call_function call_module output`` likewise
``*``                          any node; may be left out before ``[`` and ``:``
``#relu_1``                    the node of that name
``(conv1d|conv2d)``            one or the other; each may have filters of its own
============================== =====================================================================

============================== =====================================================================
filters, after a step
============================== =====================================================================
``[training=False]``           an attribute or operand has that value; with ``!=`` another. Defaults
                               are filled in, axes count modulo the rank, ``dim`` is ``axis``
``[bias]``                     the attribute or operand is there: neither ``None`` nor ``False``
``[kernel_size>3]``            ``<  <=  >  >=``; for a tuple, it holds for every item
``[dtype=f32]``                dtype of the result
``[shape=f32[B,3,*,*]]``       its shape: ``*`` is any dim, ``...`` any number of them;
                               ``[shape=(B,...,3)]`` for any dtype
``[rank=4]``                   its number of axes
``[size>1000000]``             its number of elements, ``[bytes>1MB]`` its bytes (MB, MiB, k, G ...)
``[kind=reduction]``           kind of the op: pointwise view reduction contraction window gather
                               scatter scan creation composite opaque random
``[path="head.*"]``            path of a weight (``get_attr``) or a leaf module, ``*`` for anything
``:users(>1)``                 number of nodes that read it
``:in("layers.*.attn")``       made in such a module, or in one inside it; ``*`` is one part of the
                               path, ``**`` any number of parts
``:at("model.py:31")``         made by that line; ``"model.py:31-40"``, ``"model.py"``
``:constant``                  depends on no input and no random number (weights included)
``:random``                    draws random numbers
``:input``                     an input of the graph
``:dead``                      nothing that the graph returns or does depends on it
``:first`` ``:last``           the first, the last of the nodes that the filters before it leave
``:last("layers.*.attn")``     the last of them in each of these modules; ``:first("...")`` likewise
``:not(relu|[rank=4])``        none of these
============================== =====================================================================

============================== =====================================================================
chains and queries
============================== =====================================================================
``a > b``                      ``b`` that reads ``a``
``a >> b``                     ``b`` that depends on ``a``, through any number of nodes
``module("encoder.*") a > b``  both made inside such a module; without steps: all nodes made there
``a > b, c``                   several queries
============================== =====================================================================

A node that lacks the attribute, or the type that is asked for, is never found, whatever the sign.
Every step takes time linear in the size of the graph.
"""
