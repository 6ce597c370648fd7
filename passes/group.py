"""Grouping: decide which nodes are computed together in one kernel.

In: a GraphModule whose ops all have a body. Out: a list of :class:`Group`; each stores one value
(its ``root``) and computes its other members on the fly. A group is one of

- *loops*: pointwise chains, views, gathers and reductions with their producers and consumers
  (softmax and layer_norm are one group each);
- *template*: a contraction or composite (``anchor``) that the target claims, with a pointwise
  epilogue after it and strided views before it.

How: nodes are visited from the output to the inputs. A node joins the group of its readers when
every reader is in that group and the *index* by which it is read shows that computing it there costs
nothing extra: an elementwise producer read once per element, or a reduction read by the loops
outside it. The index is found by evaluating the op's body, so that no op needs a fusion rule of its
own. Everything after a contraction becomes its epilogue if that index can be solved for the loop
variables (:func:`invert`): the contraction's loops then replace those of the result.

Example: ``relu(linear(x)) + y`` is one group, anchored at the linear; ``softmax`` (expanded to max,
sub, exp, sum, div) is one group of loops.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op, as_multi_index, normalize_axes
from fxlite.scalar import expr
from fxlite.scalar.expr import Apply, ConstReader, Expr, Load, MultiIndex, Reduction, fresh_var
from fxlite.scalar.functions import FUNCTIONS
from fxlite.scalar.index import Atom, Index, Quotient, Remainder, Var, flatten, product
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType


def invert(
    index: MultiIndex, space: tuple[Var, ...], type: TensorType
) -> tuple[tuple[Var, ...], dict[Var, Index]] | None:
    """Coordinates of a value read at ``index`` (fresh variables), and the loop variables of
    ``space`` in terms of them.

    None unless the reads are one-to-one. Each loop variable must be a coordinate, or be split over
    two coordinates as quotient and remainder (a reshape that joins axes); a coordinate may combine
    several variables or such halves (a reshape that splits an axis). The last one combines only
    variables of known extents: in the innermost loop, a division by a named size costs too much."""
    coordinates = [fresh_var(d, "c") for d in type.shape]
    solved: dict[Var, Index] = {}
    halves: dict[tuple[Index, Index], dict[str, _Digit]] = {}
    for i, coordinate in zip(index, coordinates):
        if i.constant == 0 and coordinate.extent.constant == 1:
            continue
        digits = _digits(i, coordinate)
        if not digits and coordinate is not coordinates[-1]:
            digits = _digits_of_loops(i, coordinate)
        if not digits:
            return None
        for digit in digits:
            atom = digit.atom
            if isinstance(atom, Var):
                # as in a concat, whose loop runs past the end of this operand
                if atom in solved or atom.extent != digit.extent:
                    return None
                solved[atom] = digit.value
            elif isinstance(atom, (Quotient, Remainder)):
                part = "quotient" if isinstance(atom, Quotient) else "remainder"
                halves.setdefault((atom.a, atom.b), {})[part] = digit
            else:
                return None
    for (whole, divisor), parts in halves.items():
        variable = whole.single_atom
        if len(parts) != 2 or not isinstance(variable, Var) or variable in solved:
            return None
        joined = parts["quotient"].extent * parts["remainder"].extent
        if parts["remainder"].extent != divisor or joined != variable.extent:
            return None
        solved[variable] = parts["quotient"].value * divisor + parts["remainder"].value
    for variable in space:
        if variable not in solved:
            if variable.extent.constant != 1:
                return None
            solved[variable] = Index.of(0)
    return tuple(coordinates), solved


@dataclass(frozen=True)
class _Digit:
    """An atom of an index, and its value in terms of the coordinate that the index equals."""

    atom: Atom
    value: Index
    extent: Index


def _digits(index: Index, coordinate: Var) -> list[_Digit]:
    """The atoms of ``a``, or of ``a*6 + b*2 + c`` with ``b < 3`` and ``c < 2``, in which every
    combination has a coordinate of its own; empty for other indices."""
    weights = sorted(((w, m) for m, w in index.terms.items()), key=lambda term: term[0])
    if any(len(monomial) != 1 for _, monomial in weights) or not weights or weights[0][0] != 1:
        return []
    found: list[_Digit] = []
    for (weight, (atom,)), following in zip(weights, [w for w, _ in weights[1:]] + [None]):
        value = Index.of(coordinate) // weight
        if following is None:
            if coordinate.extent // weight * weight != coordinate.extent:
                return []
            found.append(_Digit(atom, value, coordinate.extent // weight))
        elif following % weight or following == weight:
            return []
        else:
            extent = Index.of(following // weight)
            found.append(_Digit(atom, value % extent, extent))
    return found


def _digits_of_loops(index: Index, coordinate: Var) -> list[_Digit]:
    """The loops that an index joins in row-major order, whose extents may be named."""
    loops, found, step = _joined_loops(index), list[_Digit](), Index.of(1)
    for loop in reversed(loops):
        value = Index.of(coordinate) // step
        found.append(_Digit(loop, value if loop is loops[0] else value % loop.extent, loop.extent))
        step = step * loop.extent
    return found if step == coordinate.extent else []


def loops_of(type: TensorType) -> tuple[tuple[Var, ...], MultiIndex]:
    """A loop variable for each axis, and the element that they select; an axis of size 1 needs no loop."""
    variables = tuple(fresh_var(d, "v") for d in type.shape)
    return variables, tuple(Index.of(0 if v.extent.constant == 1 else v) for v in variables)


#: Most different indices by which one producer may be read inside a group before it is stored
#: instead.
MOST_READS = 3
#: Most elementwise ops that are computed where a sliding window reads them, once for each of its places.
MOST_IN_WINDOWS = 2
#: Operations of an element that is computed wherever it is read, if it depends on places alone.
MOST_STEPS = 6
#: Kinds of ops whose elements may so depend.
_OF_PLACES = ("creation", "pointwise", "view")
#: Rows, and elements of a row, from which a reduction of rows gets loops of its own beside another one.
FEW_ROWS = 8
#: The fewest columns of a product whose sums are added to side by side, if there are as many terms.
FEW_COLUMNS = 16
#: Bytes after which addresses share the lines of a first-level cache.
PAGE = 4096
#: Fewer elements are not copied into another order before they are reduced.
FEW_ELEMENTS = 4096
#: Elements of the longest rows that a kernel reduces side by side, with one row in each lane of a vector.
SHORT_ROW = 32
#: The fewest rows of a product that are not stored side by side first, if the next ones are elsewhere.
LONG_PART = 64
#: Largest group: a kernel stays readable, and lowering (which recurses over a group) stays shallow.
MOST_MEMBERS = 48


@dataclass
class Group:
    """Nodes computed by one kernel. ``root`` is the value it stores; ``members`` (with the root) are
    in graph order; ``anchor`` is the contraction that a template computes, if any. ``beside`` is a
    second value that is stored if the target can do so."""

    root: Node
    space: tuple[Var, ...]
    members: dict[Node, None] = field(default_factory=dict)
    anchor: Node | None = None
    reads: dict[Node, list[MultiIndex]] = field(default_factory=dict)
    operand_views: set[Node] = field(default_factory=set)
    beside: Node | None = None
    #: The results of a loop or condition that somebody reads, which are stored, not the root.
    parts: tuple[Node, ...] = ()
    #: For what is stored into memory that holds an operand so far: that operand.
    taken: dict[Node, Node] = field(default_factory=dict)
    #: By axis the first element that anybody reads, and the one behind the last; all of other axes.
    needed: dict[int, tuple[Index, Index]] = field(default_factory=dict)
    #: The plan of the bodies of a loop or condition, by who makes a program of it.
    bodies: Any = None

    @property
    def index(self) -> MultiIndex:
        """The element of the root that an iteration of the group's loops stores; an axis of size 1
        has no loop, and index 0."""
        return tuple(Index.of(0 if v.extent.constant == 1 else v) for v in self.space)

    @property
    def kind(self) -> str:
        """``template``, ``scan``, ``scatter``, ``control`` or ``loops``."""
        if self.anchor is not None:
            return "template"
        target = self.root.target
        return target.kind if target.kind in ("scan", "scatter", "control") else "loops"

    @property
    def stored(self) -> tuple[Node, ...]:
        """The values that the group stores."""
        if self.kind == "control":
            return self.parts
        return (self.root,) if self.beside is None else (self.root, self.beside)

    @property
    def inputs(self) -> list[Node]:
        """Values read from memory, in order of first use."""
        return list(self.reads)

    def __repr__(self) -> str:
        return f"Group({self.kind}: {', '.join(n.name for n in self.members)})"


class NodeReader:
    """Stands for a node's value in a body; each read calls ``on_read`` and returns its result."""

    def __init__(self, node: Node, on_read: Callable[[Node, MultiIndex], Expr]) -> None:
        self.node = node
        self.type: TensorType = node.type
        self.dtype = node.type.dtype
        self.shape = tuple(Index.of(d) for d in node.type.shape)
        self.on_read = on_read

    def __getitem__(self, index: Any) -> Expr:
        return self.on_read(self.node, as_multi_index(index))

    __iter__ = None  # it has no length: iterating over it would not end


def element_of(node: Node, index: MultiIndex, on_read: Callable[[Node, MultiIndex], Expr]) -> Expr:
    """The scalar expression of one element of a node's value."""
    target: Op = node.target

    def reader(value: Any) -> Any:
        return NodeReader(value, on_read) if isinstance(value, Node) else ConstReader(value)

    return target.element(index, target.map_tensors(reader, node.arguments))


def group(
    module: GraphModule, claims: Callable[[Node], bool] = lambda node: False, stored: Collection[Node] = ()
) -> list[Group]:
    """Groups in execution order. ``claims(node)`` is true for contractions and composites for which
    the target has a template; the ops of all other nodes need a body (run decompose first). The
    nodes in ``stored`` never join the group of their readers."""
    return _Grouping(module.graph, claims, stored).run()


def is_of_places(node: Node, known: dict[Node, int]) -> bool:
    """True if the elements depend only on their position, on sizes and on single numbers, as masks and
    positions such as ``np.arange(n) < i`` do. They are computed where they are read, which costs less than
    reading them from memory and lets loops skip what a mask excludes. ``known`` caches the step counts."""
    if node.target.kind not in _OF_PLACES or node.type.dtype not in (dtypes.bool_, dtypes.int64):
        return False
    return _steps_of_places(node, known) <= MOST_STEPS


def _steps_of_places(node: Node, known: dict[Node, int]) -> int:
    """The number of operations per element of such a value; more than :data:`MOST_STEPS` for other nodes."""
    work = [node]
    while work:
        last = work.pop()
        if last in known:
            continue
        if last.type.rank == 0:
            known[last] = 0
            continue
        is_made = last.op == "call_function" and last.target.kind == "creation" and last.all_input_nodes
        if last.op != "call_function" or last.target.kind not in _OF_PLACES or is_made:
            known[last] = MOST_STEPS + 1
            continue
        waiting = [n for n in last.all_input_nodes if n not in known]
        if waiting:
            work += [last, *waiting]
            continue
        own = int(last.target.kind == "pointwise")
        known[last] = min(own + sum(known[n] for n in last.all_input_nodes), MOST_STEPS + 1)
    return known[node]


def is_one_place(node: Node) -> bool:
    """True for a slice at one computed place of an axis: it is read in place, as a view is."""
    index = node.arguments.get("index") if node.target.looks_up and node.target.kind == "gather" else None
    return isinstance(index, Node) and index.type.rank == 0


class _Grouping:
    def __init__(self, graph: Graph, claims: Callable[[Node], bool], stored: Collection[Node]) -> None:
        self.graph = graph
        self.claims = claims
        self.stored = stored
        self.groups: list[Group] = []
        self.readers: dict[Node, list[Group]] = {}
        self.costs: dict[Node, bool] = {}
        self.places: dict[Node, int] = {}  # the cache of `_steps_of_places`
        self.in_windows = Counter[int]()  # by the id of a group: elementwise ops that its sliding windows compute

    def run(self) -> list[Group]:
        output = self.graph.output_node()
        results = set(output.all_input_nodes)
        for node in reversed(self.graph.nodes):
            if node.op != "call_function":
                continue
            if node.target.kind == "control":
                self._start_control(node)
                continue
            if part_of_control(node) is not None:
                continue
            groups = self.readers.get(node, [])
            alone = node in results or node in self.stored or not groups
            if alone or not self._take(node, groups):
                self._start(node)
        self.groups.reverse()
        position = {n: i for i, n in enumerate(self.graph.nodes)}
        for found in self.groups:
            found.members = dict.fromkeys(sorted(found.members, key=position.__getitem__))
        return self.groups

    def _start(self, node: Node) -> None:
        """Begin a new group that stores ``node``."""
        made = Group(node, loops_of(node.type)[0])
        self.groups.append(made)
        self._admit(made, node, [made.index])
        if self.claims(node):
            made.anchor = node

    def _start_control(self, node: Node) -> None:
        """Begin a group for a loop or condition, which stores those of its results that are read."""
        parts = tuple(user for user in node.users if user.users)
        made = Group(node, (), dict.fromkeys((node, *parts)), parts=parts)
        self.groups.append(made)
        for read in node.all_input_nodes:
            made.reads[read] = []
            self.readers.setdefault(read, []).append(made)

    def _admit(self, target: Group, node: Node, indices: Iterable[MultiIndex]) -> None:
        target.members[node] = None
        target.reads.pop(node, None)

        def on_read(read: Node, index: MultiIndex) -> Expr:
            known = target.reads.setdefault(read, [])
            if index not in known:
                known.append(index)
            groups = self.readers.setdefault(read, [])
            if target not in groups:
                groups.append(target)
            return Load(read.type.dtype, read.name, index)

        if not node.target.has_body:  # a composite that a template computes as a whole
            for read in node.all_input_nodes:
                on_read(read, tuple(Index.of(fresh_var(d, "o")) for d in read.type.shape))
            return
        if node.target.kind == "scatter":  # its body gives one element; its loops store each source element once
            copied, positions, source = node.args[:3]
            on_read(copied, target.index)
            here = loops_of(positions.type)[1]
            on_read(positions, here)
            on_read(source, here)
            return
        for index in indices:
            element_of(node, index, on_read)

    def _take(self, node: Node, groups: list[Group]) -> bool:
        """Add a node to all groups that read it, or to none."""
        inside = {m for g in groups for m in g.members}
        if not all(u in inside for u in node.users):
            return False
        if any(g.kind == "control" for g in groups):
            return self._take_constant(node, groups)
        is_in_place = node.target.kind == "view" or is_one_place(node)
        of_places = is_of_places(node, self.places)
        # all of what is read of is not stored for an element, nor a mask for all
        most = MOST_MEMBERS * 2 if is_in_place or of_places else MOST_MEMBERS
        if any(len(g.members) >= most for g in groups):
            return False
        if node.target.kind == "view" and any(g.kind == "scatter" and g.root.args[0] is node for g in groups):
            return False  # a scatter writes into the memory that it shows
        if is_in_place or node.target.kind == "creation" or of_places:
            if not all(self._view_fits(node, g) for g in groups):
                return False
        elif len(groups) > 1:
            if not self._reads_no_more(node) or not all(self._fits(node, g) for g in groups):
                return False
        elif not self._fits(node, groups[0]):
            return False
        for found in groups:
            if found.anchor is not None and self._is_operand(node, found):
                found.operand_views.add(node)
            self._admit(found, node, found.reads[node])
        return True

    def _reads_no_more(self, node: Node) -> bool:
        """True for a cheap element-wise value of which each element is computed from one element of an operand that is
        in memory in any case, and of further operands that are much smaller, as ``x - x.max(1)``: several groups read
        that operand instead of the value, which then is not stored. The same holds for what a mask of places chooses:
        its readers then see what it leaves out."""
        if node.target.kind != "pointwise" or self._is_expensive(node):
            return False
        if self._is_filled(node):
            return True
        sizes = {read: self._bytes(read) for read in node.all_input_nodes}
        own = self._bytes(node)
        whole = [read for read, size in sizes.items() if size is None or own is None or size * FEW_ROWS > own]
        if len(whole) != 1 or whole[0].type.shape != node.type.shape:
            return False
        (operand,) = whole
        is_stored = operand.op != "call_function" or len(operand.users) > 1
        return is_stored and operand.type.dtype.itemsize <= node.type.dtype.itemsize

    def _is_filled(self, node: Node) -> bool:
        """True for an array with a number in place of the elements outside of a part with computed bounds."""
        if node.target.name != "where":
            return False
        mask, x, number = node.args
        is_like = isinstance(x, Node) and x.type.shape == node.type.shape and x.type.dtype is node.type.dtype
        is_called = isinstance(mask, Node) and mask.op == "call_function" and mask.type.rank > 0
        return is_like and is_called and not isinstance(number, Node) and is_of_places(mask, self.places)

    @staticmethod
    def _bytes(node: Node) -> int | None:
        """The size of a value; None if it has a named axis."""
        elements = product(node.type.shape).constant
        return None if elements is None else elements * node.type.dtype.itemsize

    def _take_constant(self, node: Node, groups: list[Group]) -> bool:
        """Add a number to the loops and conditions that read it, which write it into their code."""
        if constant_of(node) is None or any(g.kind != "control" for g in groups):
            return False
        for found in groups:
            found.members[node] = None
            del found.reads[node]
        return True

    # -- rules -----------------------------------------------------------------------------------
    def _fits(self, node: Node, found: Group) -> bool:
        if found.kind == "control":
            return False
        if found.kind in ("scan", "scatter"):
            return self._serial_fits(node, found)
        indices = found.reads[node]
        kind = node.target.kind
        if found.anchor is not None and self._is_operand(node, found):
            return False
        if self.claims(node):
            return self._as_anchor(node, found, indices)
        if kind == "gather" and self._is_factor(node, found, found.reads[node]):
            return False
        if kind in ("pointwise", "gather"):
            if not _only_elementwise(found) and self._follows_contraction(node):
                return False  # it is that contraction's epilogue
            if self._is_expensive(node) and any(u.target.kind == "contraction" for u in node.users):
                return False  # loops of products would compute it for each of their outputs
            return self._pointwise_fits(node, found, indices)
        if kind in ("reduction", "window", "contraction"):
            return found.anchor is None and self._reduction_fits(node, found, indices)
        return False

    def _serial_fits(self, node: Node, found: Group) -> bool:
        """True if the node costs so little that a scan or a scatter may compute it where it reads it, one
        element after the other; a group of its own would be vectorized."""
        kinds = ("pointwise", "gather") if found.kind == "scatter" else ("pointwise",)
        if node.target.kind not in kinds or self._follows_contraction(node):
            return False
        return len(found.members) <= MOST_STEPS and not self._is_expensive(node) and len(found.reads[node]) == 1

    def _is_operand(self, node: Node, found: Group) -> bool:
        """True if the group's contraction (or a view before it) reads the node."""
        behind = {found.anchor, *found.operand_views}
        return any(u in behind for u in node.users)

    def _pointwise_fits(self, node: Node, found: Group, indices: list[MultiIndex]) -> bool:
        """True if the node is read at few places, and not recomputed in loops that its value does not depend on."""
        if len(indices) > MOST_READS:
            return False
        cheap = not self._is_expensive(node)
        if len(indices) > 2 and not cheap:
            return False
        if not cheap and any(map(expr.run_time_values, indices)) and _is_small_table(node, found):
            return False
        for index in indices:
            used = frozenset[Var]().union(*(i.variables() for i in index))
            inner = used.difference(found.space)
            if inner and _overlaps(index):  # a sliding window computes it several times
                if not cheap or self.in_windows[id(found)] >= MOST_IN_WINDOWS:
                    return False
                self.in_windows[id(found)] += 1
            outer = [v for v in found.space if v.extent.constant != 1]
            prefix = outer[: len(used.intersection(outer))]
            broadcast = not inner and set(prefix) != used.intersection(outer)
            if inner and found.anchor is None and any(m.target.kind == "contraction" for m in found.members):
                broadcast = not used.issuperset(outer)  # a product's sums are computed for each of its elements
            if broadcast and not cheap:
                return False
        return True

    def _follows_contraction(self, node: Node) -> bool:
        """True if a contraction with a template, which no other node reads, leads here through
        elementwise ops (at most as many as a group may have)."""
        chain = [node]
        for reader in chain:
            for read in reader.all_input_nodes:
                if read.op == "call_function" and len(read.users) == 1:
                    if self.claims(read) and not read.target.stands_alone:
                        return True
                    if read.target.kind == "pointwise" and len(chain) < MOST_MEMBERS:
                        chain.append(read)
        return False

    def _is_expensive(self, node: Node) -> bool:
        """True if one element costs more than a few instructions."""
        known = self.costs.get(node)
        if known is None:
            applied = [e for e in expr.walk(_any_element(node)) if isinstance(e, Apply)]
            # A value that is quantized once takes a quarter of the memory.
            # Each part of a concatenation gets loops of its own.
            is_joined = node.target.name == "concat" and len(node.args[0]) <= MOST_READS
            known = (len(applied) > 4 and not is_joined) or any(
                FUNCTIONS[e.function].cost > 1 or e.function == "saturate" for e in applied
            )
            self.costs[node] = known
        return known

    def _reduction_fits(self, node: Node, found: Group, indices: list[MultiIndex]) -> bool:
        """True if the reduction is computed once per outer iteration: its index must consist of whole
        outer loops of the group, in any order, and leave the inner loops to its readers."""
        if len(indices) != 1:
            return False
        if _combines_rows(node) and any(member.target.kind == "reduction" for member in found.members):
            return False  # loops that combine whole rows, not single elements, hold one reduction
        (index,) = indices
        outer = [v for v in found.space if v.extent.constant != 1]
        used: list[Var] = []
        for i in index:
            if i.constant == 0:
                continue
            loops = _joined_loops(i)
            if not loops or not set(outer).issuperset(loops) or not set(used).isdisjoint(loops):
                return False
            used += loops
        if set(outer[: len(used)]) != set(used):
            return False
        if outer and not used:
            return False  # a full reduction before everything else is a kernel of its own
        is_apart = used and used[-1] is not outer[-1] and not _has_few_elements(node)
        if is_apart and (_combines_rows(node) or (node.target.kind == "window" and _combines(node))):
            return False  # its elements are adjacent along another axis than those of the result
        # a reader that is itself a window or contraction would compute it repeatedly
        return len(used) == len(outer) or node.target.kind == "reduction"

    def _as_anchor(self, node: Node, found: Group, indices: list[MultiIndex]) -> bool:
        """Make the node the group's contraction; everything else in the group becomes its epilogue."""
        if found.anchor is not None or len(indices) != 1 or node.target.stands_alone:
            return False
        if not _only_elementwise(found):
            return False
        inverse = invert(indices[0], found.space, node.type)
        if inverse is None:
            return False
        if node.target.is_matrix_product and _stores_columns(indices[0], found):
            return False
        if node.target.is_convolution and _weaves_rows(node, inverse, found):
            return False
        found.anchor = node
        return True

    def _view_fits(self, node: Node, found: Group) -> bool:
        """True if the view can join. A view costs nothing in loops, unless a sliding window, or a reduction and what
        is computed with it, would read elements that are not adjacent several times. Before a contraction it must
        stay one strided access."""
        if found.kind == "control":
            return False
        if found.anchor is None or not self._is_operand(node, found):
            indices = found.reads[node]
            if node.target.kind == "creation" and not node.all_input_nodes:
                return True  # its elements are computed from their position
            if _reduces_columns(node, found) and not self._is_side_by_side(node, found):
                return False
            if self._is_computed_again(node, found):
                return False
            if self._is_factor(node, found, indices):
                return False
            is_in_place = node.target.kind == "view" and all(n.op != "call_function" for n in node.all_input_nodes)
            is_in_place = is_in_place or is_of_places(node, self.places)
            return (is_in_place or len(indices) <= MOST_READS) and not any(
                _overlaps(i) and _breaks_rows(node, i) for i in indices
            )
        if node.target.kind != "view" or not found.anchor.target.reads_views:
            return False
        places = _places_of(node, found.reads[node])
        if places is None:
            return False
        if found.anchor.target.name == "int_matmul" and self._is_left(node, found):
            # four adjacent numbers along the reduced axis are read at once
            inner = {v for p in places for v in p.variables()}.difference(found.space)
            if any(p.coefficient(v) != Index.of(1) for p in places for v in inner):
                return False
        return all(place.is_polynomial for place in places) and self._has_long_rows(node, found)

    def _has_long_rows(self, node: Node, found: Group) -> bool:
        """True if the rows of the first operand of a product of matrices, read through this view, are equally spaced,
        or in a few long parts: a template computes each part as a product of its own."""
        anchor = found.anchor
        assert anchor is not None
        if not anchor.target.is_matrix_product or not self._is_left(node, found):
            return True
        places: list[Index] = []

        def on_read(read: Node, index: MultiIndex) -> Expr:
            if read is node or read in found.operand_views:
                return element_of(read, index, on_read)
            places.append(flatten(index, read.type.shape))
            return Load(read.type.dtype, read.name, index)

        element_of(anchor, loops_of(anchor.type)[1], on_read)
        parts = (a.b.constant for p in places for a in p.atoms() if isinstance(a, (Quotient, Remainder)))
        return all((size or LONG_PART) >= LONG_PART for size in parts)

    def _is_factor(self, node: Node, found: Group, indices: list[MultiIndex]) -> bool:
        """True if loops of a product of matrices in the group read each element of the node, seen through views, so
        often that reading it from a copy takes less time: because looking for it takes long, or because the copy is
        adjacent where adjacent results read it, and what the node views is not."""
        readers = [u for u in node.users if u in found.members]
        for reader in readers:
            if reader.target.kind == "view":
                readers += [u for u in reader.users if u in found.members and u not in readers]
        products = [r for r in readers if r.target.is_matrix_product and not self.claims(r)]
        counts = {p: _count_of_reads(node, p) for p in products}
        if all(count < FEW_ROWS for count in counts.values()):
            return False
        if not _is_strided(node, indices):
            return True
        terms = {p: Index.of(p.args[0].type.shape[-1]).constant or 0 for p in products}
        is_read_often = any(count >= max(FEW_ROWS, terms[p] // FEW_ROWS) for p, count in counts.items())
        if not is_read_often or not found.space:
            return False
        along = found.space[-1]
        is_wide = (along.extent.constant or FEW_COLUMNS) >= min(FEW_COLUMNS, *terms.values())
        return is_wide and _is_across(node, indices, along)

    def _is_side_by_side(self, node: Node, found: Group) -> bool:
        """True if rows of the view are short and what is reduced takes long to compute: then a kernel computes many of
        them side by side, for which it is best if these are adjacent in memory."""
        row = found.space[-1].extent.constant if found.space else None
        if row is None or row > SHORT_ROW or Index.of(node.type.shape[-1]) != row:
            return False
        return self._reduces_costly_terms(found)

    def _is_computed_again(self, node: Node, found: Group) -> bool:
        """True if a reduction in the group reads joined axes of the node in the order of memory, and results do not:
        what is reduced, which takes long to compute, would be computed once for each."""
        indices = found.reads[node]
        if node.target.kind != "view" or len(indices) < 2 or _has_few_elements(node):
            return False
        return self._reduces_costly_terms(found) and any(_turns_rows(node, i) for i in indices)

    def _reduces_costly_terms(self, found: Group) -> bool:
        """True if what a reduction in the group adds or compares is computed in the group and takes long."""
        reduced = {m.args[0] for m in found.members if m.target.kind == "reduction"}
        return any(m.target.kind == "pointwise" and self._is_expensive(m) for m in reduced.intersection(found.members))

    def _is_left(self, node: Node, found: Group) -> bool:
        """True if the first operand of the group's contraction is this node, seen through views."""
        assert found.anchor is not None
        left = found.anchor.args[0]
        while left is not node and left in found.operand_views:
            left = left.args[0]
        return left is node


def _places_of(node: Node, indices: Iterable[MultiIndex]) -> list[Index] | None:
    """Where elements of a view are in memory; None if each is not one access, as with padding or several inputs."""
    places: list[Index] = []

    def on_read(read: Node, index: MultiIndex) -> Expr:
        places.append(flatten(index, read.type.shape))
        return Load(read.type.dtype, read.name, index)

    values = [element_of(node, index, on_read) for index in indices]
    return places if all(isinstance(v, Load) and v.guard is None for v in values) else None


def _is_strided(node: Node, indices: Iterable[MultiIndex]) -> bool:
    """True if a view is a strided access."""
    places = _places_of(node, indices)
    return places is not None and all(place.is_polynomial for place in places)


def _is_across(node: Node, indices: Iterable[MultiIndex], along: Var) -> bool:
    """True if a copy of the view would be adjacent along the variable and what it views is not."""
    places = _places_of(node, [i for i in indices if i and i[-1].coefficient(along) == Index.of(1)])
    return any(place.coefficient(along) not in (Index.of(1), Index.of(-1)) for place in places or ())


def _count_of_reads(node: Node, result: Node) -> float:
    """How often a product of matrices reads each element of a value on average, with named sizes taken for large."""
    x = result.args[0]
    sizes = (*result.type.shape, x.type.shape[-1])
    count = (product(sizes) // product(node.type.shape)).constant if node.type.size != 0 else 0
    return math.inf if count is None else count


def _has_few_elements(node: Node) -> bool:
    """True if copying a node's value takes next to no time, with batches of named sizes taken for small."""
    known = [n for n in node.type.shape if type(n) is int]
    return math.prod(known) < FEW_ELEMENTS and bool(known)


def _is_small_table(node: Node, found: Group) -> bool:
    """True if a value has few elements, and a group that reads it at computed places has more."""
    own, all_reads = (product(n.type.shape).constant for n in (node, found.root))
    return own is not None and own < FEW_ELEMENTS and (all_reads is None or all_reads > own)


def _any_element(node: Node) -> Expr:
    """An element of a node in terms of its operands."""
    index = tuple(Index.of(fresh_var(d)) for d in node.type.shape)
    return element_of(node, index, lambda n, i: Load(n.type.dtype, n.name, i))


def _combines(node: Node) -> bool:
    """True if an element combines a whole window of elements, and not only a few of them, as in a resized image."""
    return any(isinstance(e, Reduction) for e in expr.walk(_any_element(node)))


def _combines_rows(node: Node) -> bool:
    """True for a reduction over an axis other than the last one, along which elements are adjacent in memory."""
    if node.target.kind != "reduction" or "axis" not in node.bound:
        return False
    shape = node.args[0].type.shape
    axes = normalize_axes(node.bound["axis"], len(shape))
    if not shape or len(shape) - 1 in axes:
        return False
    rows = product(shape[axis] for axis in axes).constant
    row = product(shape[max(axes, default=-1) + 1 :]).constant
    return (rows is None or rows >= FEW_ROWS) and (row is None or row >= FEW_ROWS)


def constant_of(node: Node) -> Expr | None:
    """The expression of a number of rank 0 that the program computes from constants."""
    if node.op != "call_function" or node.target.name != "full" or node.type.rank:
        return None
    value, dtype = node.arguments["value"], node.type.dtype
    if isinstance(value, (bool, int, float, complex)):
        return expr.const(value, dtype)
    return expr.cast(expr.index_value(Index.of(value)), dtype)


def part_of_control(node: Node) -> Node | None:
    """The loop or condition whose result the node is."""
    if node.op != "call_function" or node.target.name != "getitem":
        return None
    source = node.args[0]
    is_part = source.op == "call_function" and source.target.kind == "control"
    return source if is_part else None


def _stores_columns(index: MultiIndex, found: Group) -> bool:
    """True if a group would store each row of a product across rows of its result that are whole pages apart: these
    compete for the same few lines of a cache, and to bring the product into this order afterwards takes less."""
    type, along = found.root.type, index[-1].variables()
    size, count = product(type.shape).constant, product(v.extent for v in along).constant
    if not along or (size or FEW_ELEMENTS) < FEW_ELEMENTS or (count or FEW_ROWS) < FEW_ROWS:
        return False
    place = flatten(found.index, type.shape)
    steps = [None if (step := place.coefficient(v)) is None else step.constant for v in along]
    return all(step and step * type.dtype.itemsize % PAGE == 0 for step in steps)


def _weaves_rows(node: Node, inverse: tuple[tuple[Var, ...], dict[Var, Index]], found: Group) -> bool:
    """True if a group would store the pixels of a row between those of others, as where channels become pixels: pixels
    are then stored one by one, and to weave rows that are stored takes less."""
    coordinates, loops = inverse
    is_first = node.arguments.get("layout", "NCHW") == "NCHW"
    if not is_first or not node.type.dtype.is_float or coordinates[-1].extent == 1:
        return False
    place = flatten(tuple(i.substitute(loops) for i in found.index), found.root.type.shape)
    return all(place.coefficient(coordinates[axis]) != 1 for axis in (1, -1))


def _only_elementwise(found: Group) -> bool:
    """True if the group could be the epilogue of a contraction."""
    return all(m.target.kind in ("pointwise", "view", "gather") for m in found.members)


def _reads_of(node: Node, index: MultiIndex) -> list[MultiIndex]:
    """Where an element of a node reads others."""
    found: list[MultiIndex] = []

    def on_read(read: Node, at: MultiIndex) -> Expr:
        found.append(at)
        return Load(read.type.dtype, read.name, at)

    element_of(node, index, on_read)
    return found


def _breaks_rows(node: Node, index: MultiIndex) -> bool:
    """True if adjacent elements along the last axis of a view are not adjacent in the value it views."""
    inner = index[-1].variables() if index else frozenset[Atom]()
    return not all(at and inner <= at[-1].variables() for at in _reads_of(node, index))


def _turns_rows(node: Node, index: MultiIndex) -> bool:
    """True if a row of the view is made of whole rows of what is viewed, which are not read one after the other, as of
    an image whose channels are moved to the front and whose axes are then joined."""
    rows = [v for v in (index[-1].variables() if index else ()) if isinstance(v, Var)]
    found = list[bool]()

    def on_read(read: Node, at: MultiIndex) -> Expr:
        place, own = flatten(at, read.type.shape), at[-1].variables() if at else ()
        steps = (place.substitute({v: Index.of(1)}) - place.substitute({v: Index.of(0)}) for v in rows if v in own)
        found.append(any(step != 1 for step in steps))
        return Load(read.type.dtype, read.name, at)

    element_of(node, index, on_read)
    return any(found)


def _reduces_columns(node: Node, found: Group) -> bool:
    """True if a group with a reduction reads long rows of a view, several times, that are not adjacent in memory, as a
    layer norm of channels that come first: the elements of a row may all compete for the same lines of a cache. A
    reduction over what is adjacent, too, reads it in the order of memory."""
    indices = found.reads[node]
    if len(indices) < 2 or not any(m.target.kind == "reduction" for m in found.members):
        return False
    row, size = Index.of(node.type.shape[-1]).constant, product(node.type.shape).constant
    if (row is not None and row < FEW_ROWS) or (size is not None and size < FEW_ELEMENTS):
        return False
    places = [(index[-1].variables(), at) for index in indices for at in _reads_of(node, index)]
    apart = [
        not inner & at[-1].variables()
        and any(inner & i.variables() for i in at)
        and not at[-1].variables().isdisjoint(found.space)
        for inner, at in places
        if at
    ]
    return bool(apart) and len(apart) == len(places) and all(apart)


def _overlaps(index: MultiIndex) -> bool:
    """True if some coordinate combines several loops, as windows do; but not those that a reshape joins."""
    return any(len(i.variables()) > 1 and not _joined_loops(i) for i in index)


MOST_JOINED = 3
"""The most loops that a joined index may have."""


def _joined_loops(index: Index) -> tuple[Var, ...]:
    """The loops, outermost first, whose places in row-major order are an index, as after a reshape that joins axes;
    none if it is not such an index."""
    found = sorted(index.variables(), key=lambda v: v.name)
    if len(found) > MOST_JOINED:
        return ()
    orders = itertools.permutations(found)
    return next((o for o in orders if flatten(map(Index.of, o), [v.extent for v in o]) == index), ())
