"""The journal of a graph's edits: what makes a pass a transaction, and ``undo`` cheap.

In: for every edit its inverse, as a record. Out: rollback to a position, undo and redo of whole
units (a transaction, or the loose edits between two), and the nodes touched since a position. All
of it costs as much as the edits, whatever the size of the graph.

A record is either a node (its inverse: take the node out again) or a tuple ``(function, subject,
*rest)`` whose call undoes the edit. Functions that edit write their own inverse, so that what an
undo writes is what a redo needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import GraphError

if TYPE_CHECKING:
    from fxlite.graph.node import Node


class Journal:
    """Inverse edits in order. ``records.append`` is called by every edit."""

    __slots__ = ("_depth", "_loose", "_redo", "_units", "generation", "records", "undone")

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.generation = 0  # grows whenever records are taken away: positions before lose meaning
        #: Where each rollback and undo began: what was known of later positions is void.
        self.undone: list[int] = []
        self._units: list[tuple[str, int]] = []  # (label, first record)
        self._redo: list[tuple[str, list[Any]]] = []
        self._loose = 0  # where the edits start that belong to no unit yet
        self._depth = 0

    @property
    def version(self) -> tuple[int, int]:
        """Differs whenever the graph may differ."""
        return self.generation, len(self.records)

    @property
    def labels(self) -> list[str]:
        """Labels of the units that can be undone, oldest first."""
        loose = ["edits"] if len(self.records) > self._loose else []
        return [label for label, _ in self._units] + loose

    def forget(self) -> None:
        """Start a new history: nothing before can be undone."""
        self.records.clear()
        self._units.clear()
        self._redo.clear()
        self._loose = 0
        self.generation += 1
        self.undone.append(-1)

    # -- units ---------------------------------------------------------------------------------
    def begin(self) -> int:
        """Start a unit (or a part of the one that is open); returns the position."""
        if self._depth == 0:
            self._close_loose()
        self._depth += 1
        return len(self.records)

    def commit(self, label: str, start: int) -> None:
        """End what :meth:`begin` started: the edits stay, as one unit if they are the outermost."""
        self._depth -= 1
        if self._depth == 0 and len(self.records) > start:
            self._units.append((label, start))
            self._redo.clear()
            self._loose = len(self.records)

    def roll_back(self, start: int) -> None:
        """End what :meth:`begin` started: the edits since are taken back."""
        self._depth -= 1
        self.undone.append(start)
        self.take_back(start)

    def undo(self) -> str:
        """Take back the last unit; returns its label. Raises GraphError where there is none."""
        self._require_closed()
        self._close_loose()
        if not self._units:
            raise GraphError("there is nothing to undo")
        label, start = self._units.pop()
        self.undone.append(start)
        self._redo.append((label, self.take_back(start)))
        self._loose = start
        return label

    def redo(self) -> str:
        """Do again what the last undo took back; returns its label. Raises GraphError."""
        self._require_closed()
        self._close_loose()
        if not self._redo:
            raise GraphError("there is nothing to redo")
        label, records = self._redo.pop()
        start = len(self.records)
        self.replay(records)
        self._units.append((label, start))
        self._loose = len(self.records)
        return label

    def _close_loose(self) -> None:
        if len(self.records) > self._loose:
            self._units.append(("edits", self._loose))
            self._redo.clear()
            self._loose = len(self.records)

    def _require_closed(self) -> None:
        if self._depth:
            raise GraphError("undo and redo do not work inside a transaction or a running pass")

    # -- records -------------------------------------------------------------------------------
    def take_back(self, position: int) -> list[Any]:
        """Undo all records from ``position`` on; returns what :meth:`replay` needs to redo them."""
        taken = self.records[position:]
        if not taken:
            return []
        del self.records[position:]
        self.generation += 1
        for record in reversed(taken):
            undo_record(record)
        again = self.records[position:]  # what the inverse edits wrote
        del self.records[position:]
        return again

    def replay(self, records: list[Any]) -> None:
        """Do again what :meth:`take_back` undid."""
        for record in reversed(records):
            undo_record(record)
        self.generation += 1

    def touched(self, position: int) -> Iterator[Any]:
        """What the records from ``position`` on are about: nodes (some of them erased by now),
        modules and the graph itself, each once."""
        subjects = (r[1] if r.__class__ is tuple else r for r in self.records[position:])
        return iter({id(subject): subject for subject in subjects}.values())


def undo_record(record: Any) -> None:
    """Perform the inverse edit."""
    if record.__class__ is tuple:
        record[0](*record[1:])
    else:
        node: Node = record
        node.graph._store.detach(node)
