"""What a back end supports, in torch.fx's classes, and the partitioner that asks them.

In: a GraphModule, and objects that say of a node whether it is supported. Out: partitions, or the
module with a submodule for each. What they do is :func:`fxlite.passes.partition` and
:func:`fxlite.passes.fuse_by_partitions`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fxlite.base.errors import expect
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.ops.op import Op, as_op
from fxlite.passes.cutting.partition import Partition, partition
from fxlite.passes.cutting.split_module import fuse_by_partitions
from fxlite.types.dtypes import dtype as as_dtype
from fxlite.types.tensor_type import TensorType

IsNodeSupported = Callable[[Mapping[str, Module], Node], bool]
#: Dtypes of the operands by position, and of those by name; None, for one or all: any.
SupportedDtypes = tuple[Sequence[Sequence[Any] | None], Mapping[str, Sequence[Any]]] | None


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """The name of what a call calls: of the op, or of the leaf module's class."""
    if node.op == "call_module":
        return type(submodules[node.target]).__name__
    return node.target.name if isinstance(node.target, Op) else str(node.target)


class OperatorSupportBase(abc.ABC):
    """Says whether a back end supports a node; subclass it, or :func:`create_op_support`."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        """``submodules`` are the leaf modules by their paths."""


class OperatorSupport(OperatorSupportBase):
    """Supports what is in a table: ops (or their names, or functions that mean one) and classes of
    leaf modules (or their names), each with None or the dtypes of its operands."""

    _support_dict: Mapping[Any, SupportedDtypes] = {}

    def __init__(self, support_dict: Mapping[Any, SupportedDtypes] | None = None) -> None:
        if support_dict is not None:
            self._support_dict = support_dict

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        if not node.op.startswith("call_"):
            return True
        name = get_node_target(submodules, node)
        for key, dtypes in self._support_dict.items():
            if _name_of(key) == name:
                return dtypes is None or _has_dtypes(node, *dtypes)
        return False


def _name_of(key: Any) -> str:
    """The name of an op or class in a table."""
    if isinstance(key, str):
        return key.rpartition(".")[2]
    return key.__name__ if isinstance(key, type) else as_op(key).name


def _has_dtypes(node: Node, by_position: Sequence[Sequence[Any] | None], by_name: Mapping[str, Sequence[Any]]) -> bool:
    wanted = [*zip(node.args, by_position), *((node.kwargs.get(k), v) for k, v in by_name.items())]
    return all(dtypes is None or not isinstance(value, Node) or _has_one_of(value, dtypes) for value, dtypes in wanted)


def _has_one_of(node: Node, dtypes: Iterable[Any]) -> bool:
    kind = node.type
    return isinstance(kind, TensorType) and any(kind.dtype == as_dtype(d) for d in dtypes)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """An :class:`OperatorSupportBase` of a function."""

    class FunctionalOperatorSupport(OperatorSupportBase):
        def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
            return is_node_supported(submodules, node)

    return FunctionalOperatorSupport()


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what all of them support."""
    return create_op_support(lambda modules, node: all(s.is_node_supported(modules, node) for s in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Supports what one of them supports."""
    return create_op_support(lambda modules, node: any(s.is_node_supported(modules, node) for s in op_support))


class OpSupports:
    """Usual reasons to decline a node, for :func:`chain`."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Declines nodes that read a value of that dtype."""
        return create_op_support(lambda _, node: not any(_has_one_of(used, [dtype]) for used in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Declines nodes with these names."""
        return create_op_support(lambda _, node: node.name not in disallow_set)


class CapabilityBasedPartitioner:
    """Groups of what ``operator_support`` supports; unless ``skip_horizontal_fusion`` what is
    computed side by side may be one group. Without ``allows_single_node_partition`` a group has two
    calls or more, those of ``non_compute_ops`` (and elements of results) not counted, or one of
    ``allowed_single_node_partition_ops``; both are ops or their names."""

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[Any] | None = None,
        allowed_single_node_partition_ops: Sequence[Any] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        expect(graph_module, GraphModule, "what is partitioned")
        expect(
            operator_support,
            OperatorSupportBase,
            "operator_support",
            "make one of a function: create_op_support(lambda modules, node: ...)",
        )
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = {_name_of(op) for op in non_compute_ops or ()}
        self.allowed_single = {_name_of(op) for op in allowed_single_node_partition_ops or ()}
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def propose_partitions(self) -> list[Partition]:
        """Groups in the order of their first nodes; see :func:`fxlite.passes.partition`."""
        modules = dict(self.graph_module.named_modules())

        def is_supported(node: Node) -> bool:
            return self.operator_support.is_node_supported(modules, node)

        found = partition(self.graph_module, is_supported, connected=self.skip_horizontal_fusion)
        return [p for p in found if self.allows_single_node_partition or self._is_large(p)]

    def _is_large(self, found: Partition) -> bool:
        modules = dict(self.graph_module.named_modules())
        names = [get_node_target(modules, node) for node in found.nodes]
        computing = [n for n in names if n != "getitem" and n not in self.non_compute_ops]
        return len(computing) > 1 or any(name in self.allowed_single for name in names)

    def remove_bookend_non_compute_ops(self, partitions: Iterable[Partition]) -> None:
        """Take calls of ``non_compute_ops`` out of the groups where they are at its border: nothing
        in the group that computes comes before them, or nothing after."""
        for group in partitions:
            calls = list(group.nodes)
            for nodes in (calls, calls[::-1]):
                inner: set[Node] = set()  # computes, or comes after something that does
                for node in nodes:
                    near = node.all_input_nodes if nodes is calls else node.users
                    is_free = isinstance(node.target, Op) and node.target.name in (self.non_compute_ops)
                    if not is_free or any(n in inner for n in near):
                        inner.add(node)
                    elif node in group.nodes:
                        group.remove_node(node)

    def fuse_partitions(self, partitions: Iterable[Partition], prefix: str = "fused_") -> GraphModule:
        """The module itself, with a submodule for each group."""
        return fuse_by_partitions(self.graph_module, [p.nodes for p in partitions], prefix)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Both at once."""
        return self.fuse_partitions(self.propose_partitions(), prefix)
