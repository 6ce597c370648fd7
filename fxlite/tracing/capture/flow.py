"""Control flow of a program: when it is captured, and the helpers that rewritten control flow calls
(:mod:`fxlite.tracing.capture.rewrite`).

A tracer first captures only a program's calls, which suffices for most programs. If an unknown value decides what
Python does next, it also captures control flow (:class:`Capturing`). Then constructs whose values are known while
tracing run as in plain Python, and those that depend on other values become ``cond`` and loops of the graph
(:mod:`fxlite.tracing.capture.regions`, :mod:`fxlite.tracing.capture.loops`).

In: a condition, and the parts of a construct as functions. Out: an outcome, which is None if a part ran to its end,
else the jump by which it was left.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, tee
from typing import Any

from fxlite.base.errors import FxliteError, OptionError, TraceError
from fxlite.base.location import Location, here
from fxlite.base.state import active_tracer, is_traced
from fxlite.graph.graph import Graph
from fxlite.ops.op import lookup
from fxlite.tracing.capture.capture import CALLERS, captured
from fxlite.tracing.capture.expressions import BREAK, CONTINUE, Expressions, Names, Part, Returned, settled
from fxlite.tracing.capture.flow_answers import Counted, counted
from fxlite.tracing.capture.loops import FEW_APPENDED, Hint, Loop, Variables, is_long
from fxlite.tracing.capture.places import OrNone, Place, noted, or_none, variables
from fxlite.tracing.capture.regions import Outcome, Region, calls_in, run
from fxlite.tracing.capture.rounds import Rounds
from fxlite.tracing.selections.growing import Grows

#: The most calls of ops, in all rounds together, of a loop that is unrolled, and of one inside or around a loop that
#: stays one; larger ones stay loops.
MOST_UNROLLED, _MOST_INSIDE = 2000, 250
#: So many calls, in all rounds of loops inside each other, are too many even if some rounds are shorter than the first.
_SURELY_LONG = 8 * MOST_UNROLLED
#: The most calls, in all rounds, of a loop that is unrolled because it cannot stay one: C takes minutes for more.
_MOST_FORCED = 40_000
#: The most rounds of an unrolled loop whose body has loops that stay loops.
_FEW_ROUNDS = 4
#: The most writes into parts of arrays, in all rounds, of an unrolled loop, since each becomes a kernel of its own;
#: and the most rounds of an unrolled loop inside a loop that stays one.
FEW_WRITES, _FEW_INSIDE = 16, 4
#: The most rounds of an unrolled loop that reads arrays at other places than it computes, and the most conditions in
#: all its rounds, since each becomes a kernel of its own. Which array a name is after fewer conditions is followed.
_MANY_ROUNDS = 64
#: The most rounds of an unrolled loop with an op that a function of its own computes, such as ``solve``: nothing around
#: it becomes part of that.
_FEW_ALONE = 8
#: How many rounds of a longer loop are tried, and the part of all rounds by which each is behind the one before.
_TRIED, _GOLDEN = 8, (5**0.5 - 1) / 2
#: Iterators over tuples, which a loop can take from a list, too.
_COMBINED = (
    itertools.combinations,
    itertools.combinations_with_replacement,
    itertools.permutations,
    itertools.product,
    itertools.pairwise,
)
#: Kinds of ops that templates compute if a loop is unrolled.
_LARGE = frozenset(("contraction", "window", "composite", "opaque"))

#: The most rounds that are traced inside each other if a loop that depends on a value cannot stay a loop.
_MOST_NESTED = 32
#: The most rounds of a ``while`` statement whose conditions are guessed.
_MOST_GUESSED = 100
_LEFT = "a value that is not known while tracing decides whether it goes on"


def _left(outcome: Outcome) -> Outcome:
    """An outcome given that there was a jump: if only one kind is possible, it was that one."""
    ways = [kind for kind, flag in outcome.flags.items() if flag is not False]
    return Outcome({**outcome.flags, ways[0]: True}, outcome.value) if len(ways) == 1 else outcome


class Flow(Expressions):
    """See the module's text."""

    # -- if ----------------------------------------------------------------------------------------
    def if_(self, test: Any, body: Part, orelse: Part | None, names: Names) -> None:
        truth = self.truth(test)
        if not is_traced(truth):
            if truth:
                body()
            elif orelse is not None:
                orelse()
            return
        self.either(truth, (body, orelse or _nothing), variables(names, (body, orelse)))

    def if_left(
        self, test: Any, body: Part, orelse: Part | None, names: Names, rest: Part | None, one_side: bool
    ) -> Any:
        """``if`` with parts that may be left by a jump, and the statements that follow. ``one_side``: one part never
        reaches its end, so that the statements that follow are traced once."""
        truth = self.truth(test)
        if not is_traced(truth):
            outcome = body() if truth else orelse() if orelse is not None else None
            return self.then(outcome, rest, names)

        def way(part: Part) -> Part:
            return (lambda: self.then(part(), rest, names)) if one_side else part

        places = variables(names, (body, orelse, rest))
        outcome = self.either(truth, (way(body), way(orelse or _nothing)), places)
        return outcome if one_side else self.then(outcome, rest, names)

    def then(self, outcome: Any, rest: Part | None, names: Names) -> Any:
        """Run the statements after a construct, unless it was left by a jump."""
        if rest is None:
            return outcome
        if not isinstance(outcome, Outcome):
            return rest() if outcome is None else outcome
        left, sure = self._any(outcome.flags.values()), _left(outcome)
        if left is True:
            return outcome
        return self.either(left, (lambda: sure, rest), variables(names, (rest,)))

    def _any(self, flags: Iterable[Any]) -> Any:
        found = [flag for flag in flags if flag is not False]
        result = found[0]
        for flag in found[1:]:
            result = lookup("logical_or")(result, flag)
        return result

    def endless(self, outcome: Any) -> Any:
        """The jump by which an endless loop was left."""
        return _left(outcome) if isinstance(outcome, Outcome) else outcome

    def returned(self, value: Any) -> Any:
        return Returned(value)

    def value(self, outcome: Any) -> Any:
        """The return value of a function with this outcome."""
        if not isinstance(outcome, Outcome):
            return None if outcome is None else outcome.value
        flag = outcome.flags["RETURN"]
        if flag is True or outcome.value is None:  # the end of a function returns None, too
            return outcome.value
        found = or_none(flag.tracer, outcome.value)
        if type(found) is OrNone:
            flag, found = self.and_(flag, lambda: found.is_there), found.value
        return noted(flag.tracer, flag, found)

    # -- loops -------------------------------------------------------------------------------------
    # For a loop, ``names`` are those that its iterations bind, and ``every`` also those that its ``else`` binds.
    def while_(
        self, test: Part, body: Part, orelse: Part | None, names: Names, exposed: Names, later: Names, every: Names
    ) -> Any:
        tracer = active_tracer.get()
        if tracer is not None and not tracer.decides_bools:
            about = _variables((test, body), names, exposed, later)
            kept = self._trial_of_while(tracer, test, body, about, orelse is not None)
            if kept is not None:
                return self._behind(kept, orelse, every)
        rounds = 0
        while True:
            rounds += 1
            if tracer is not None and tracer.decides_bools and rounds > _MOST_GUESSED:
                return None
            truth = self.truth(test())
            if is_traced(truth):
                assert tracer is not None
                found = Loop(tracer, test, None, body, about, self, False, orelse is not None).record()
                return self._behind(found, orelse, every)
            if not truth:
                return orelse() if orelse is not None else None
            outcome = body()
            if isinstance(outcome, Outcome):
                outcome.flags["CONTINUE"] = False
                outcome = settled(outcome)
            if isinstance(outcome, Outcome):
                assert tracer is not None
                return self._left_later(tracer, outcome, (test, body, orelse), every, about)
            if outcome is not None and outcome is not CONTINUE:
                return None if outcome is BREAK else outcome

    def _left_later(
        self, tracer: Any, outcome: Outcome, parts: tuple[Part, Part, Part | None], names: Names, about: Variables
    ) -> Any:
        """The iterations that follow one that may have left the loop, as a branch."""
        test, body, orelse = parts
        left, end = self._any(outcome.flags.values()), self._ended(_left(outcome))

        def more() -> Any:
            found = Loop(tracer, test, None, body, about, self, False, orelse is not None).record()
            return self._behind(found, orelse, names)

        return self.either(left, (lambda: end, more), variables(names, parts))

    def _trial_of_while(self, tracer: Any, test: Part, body: Part, about: Variables, has_else: bool) -> Any:
        """The outcome of a loop that stays a loop; None if its iterations are decided while tracing, and are few."""
        hint, inside = Hint.of(tracer, body), _is_inside(tracer)
        if hint.unrolls:
            return None
        found: list[Any] = []
        reasons = [""]
        kinds: list[frozenset[Any]] = []

        def trial() -> Any:
            while True:
                found.append(self.truth(test()))
                if found[-1] is not True or reasons[-1] or (len(found) > 1 and tracer.loops == "unroll"):
                    return None
                before = len(tracer.graph.nodes)
                outcome = body()
                if isinstance(outcome, Outcome) or outcome not in (None, CONTINUE):
                    return outcome
                last = _calls(_newest(tracer.graph, len(tracer.graph.nodes) - before))
                kinds.append(_kinds_of_arrays(last))
                differs = len(kinds) > 1 and kinds[-1] != kinds[-2]
                reasons.append(self._why_too_long(tracer, len(found), last, inside, differs))

        region, grows, added = Region(tracer, "a while loop", about.places), False, tracer.added.copy()
        region.maker, region.is_open = region, True
        try:
            way = run(region, trial)
        except FxliteError:
            if not found:
                raise
            return None  # try to unroll it; if that is impossible, the error says why
        except Grows as change:
            if change.maker is not region:
                raise
            grows = True
        finally:
            tracer.added = added
        is_open = grows or isinstance(way.outcome, Outcome) or any(map(is_traced, found))
        why = reasons[-1] if found[-1] is True else ""
        if not (is_open or why):
            return None
        loop = Loop(tracer, test, None, body, about, self, found[0] is True, has_else)
        try:
            outcome = loop.record()
        except FxliteError as error:
            is_required = (is_open and len(found) < 3) or tracer.loops == "keep"
            if is_required and not loop.may_settle and not grows:
                raise
            if not is_open:
                hint.unrolls = True
                tracer.note_statement("while", f"is unrolled: {str(error).splitlines()[0]}")
            return None  # the first iteration changes a form or dtype, and later ones may keep it
        if not is_open:
            tracer.note_statement("while", f"stays a loop: {why}")
        return outcome

    def _why_too_long(self, tracer: Any, rounds: int, last: Sequence[Any], inside: bool, differs: bool) -> str:
        """The reason why a ``while`` statement stays a loop, after as many rounds, of which the last one has made these
        calls; empty if there is none so far. ``differs``: of arrays of other shapes than the one before."""
        if tracer.loops == "keep":
            return 'loops="keep"'
        if sum(map(calls_in, last)) * rounds > (_MOST_INSIDE if inside else MOST_UNROLLED):
            return f"unrolled it would have more than {rounds} x {len(last)} nodes"
        if differs and rounds <= _MANY_ROUNDS:
            return ""
        what = _why_kernels(last, rounds, _FEW_INSIDE if len(tracer.bodies) > 1 else FEW_WRITES)
        return f"it has more than {rounds} rounds, which {what}" if what else ""

    def for_(
        self,
        values: Iterable[Any],
        body: Callable[[Any], Any],
        orelse: Part | None,
        names: Names,
        exposed: Names,
        later: Names,
        every: Names,
    ) -> Any:
        tracer = active_tracer.get()
        if tracer is not None and type(values) in _COMBINED:
            values = [*values]
        over = counted(tracer, values) if tracer is not None else None
        places = variables(every, (body, orelse))
        if over is None or tracer is None:
            return self._rounds(iter(values), body, orelse, places)
        about = _variables((body,), names, exposed, later)
        known, hint = type(over.count) is int, Hint.of(tracer, body)
        inside = _is_inside(tracer)
        one_by_one = isinstance(values, Rounds) or over.is_listed  # a round may change a list
        context = over.count, bool(tracer.bodies), inside
        if tracer.decides_bools:
            count = over.count if known else 2
            return self._rounds(iter(range(count)), body, orelse, places, over.item)
        if known and context not in hint.reasons:
            hint.reasons[context] = self._why_kept(tracer, over, body, about, inside)
        why = hint.reasons[context] if known else "its rounds are not known"
        if why and (over.is_rest or not hint.settles):
            loop = Loop(tracer, None, over, body, about, self, known)
            try:
                found = loop.record()
                tracer.note_statement("for", f"stays a loop: {why}")
                if isinstance(values, Rounds):
                    values.use_up(tracer.error("an iterator is read after a loop over it", "make it again"))
                return self._behind(found, orelse, every)
            except FxliteError as error:
                hint.settles = loop.may_settle and not over.is_rest
                if not hint.settles:
                    is_long = known and over.count > _MOST_NESTED and why == _LEFT
                    if not known or (not over.is_listed and (tracer.loops == "keep" or is_long)):
                        raise
                    hint.refusal, hint.unrolls, hint.reasons[context] = error, True, ""
                    tracer.note_statement("for", f"is unrolled: {str(error).splitlines()[0]}")
        if why and hint.settles and not over.is_rest:
            rest = partial(self.for_, over.rest(), body, orelse, names, exposed, later, every)
            return self._rounds(iter((0,)), body, rest, places, over.item)
        rounds: Iterator[Any] = iter(values if one_by_one else range(over.count))
        if hint.refusal is not None and not tracer.bodies:
            rounds = _few_enough(tracer, rounds, over.count, hint.refusal)
        return self._rounds(rounds, body, orelse, places, None if one_by_one else over.item)

    def filled(
        self,
        plain: Callable[[Any], Any],
        values: Any,
        element: Callable[[Any], Any],
        bodies: Callable[[Any], Callable[[Any], Callable[[Any], Any]]],
    ) -> Any:
        """The list of a comprehension. If its length is computed, or if it is long and would have many nodes when
        unrolled, a loop fills it; ``bodies`` makes the body of that from the function that adds an element, and from
        ``element``."""
        tracer = active_tracer.get()
        over = counted(tracer, values) if tracer is not None and tracer.keeps_lists else None
        if over is None or tracer is None:
            return plain(values)
        if not is_traced(over.count):
            if type(over.count) is not int or over.count <= FEW_APPENDED:
                return plain(values)
            about = _variables((), (), (), ())
            if not tracer.bodies and not self._why_kept(tracer, over, element, about, False):
                return plain(values)
        found: list[Any] = self.made([])
        self.for_(values, bodies(partial(self.call, found.append))(element), None, (), (), (), ())
        return found

    def _why_kept(self, tracer: Any, over: Counted, body: Callable[[Any], Any], about: Variables, inside: bool) -> str:
        """The reason why a loop with this number of iterations stays a loop; empty if it does not. ``inside``: it is
        part of a loop that does."""
        if not over.count or Hint.of(tracer, body).unrolls:
            return ""
        if tracer.loops == "keep" and not over.is_listed:
            return 'loops="keep"'
        for number in _sampled(over.count):
            calls: list[Any] = []
            reason = self._why_of_round(tracer, over, number, body, about, inside, calls)
            if calls and 1 < over.count <= _MANY_ROUNDS:
                other: list[Any] = []
                again = self._why_of_round(tracer, over, number - 1, body, about, inside, other)
                if again and _kinds_of_arrays(calls) != _kinds_of_arrays(other):
                    return ""
            if reason or Hint.of(tracer, body).unrolls:
                return reason
        if over.count > _MANY_ROUNDS:  # a round may do more than the first one, which finds what is known
            return self._why_of_round(tracer, over, 1, body, about, inside, [], behind=0)
        return ""

    def _why_of_round(
        self,
        tracer: Any,
        over: Counted,
        number: int,
        body: Callable[[Any], Any],
        about: Variables,
        inside: bool,
        calls: list[Any],
        behind: int | None = None,
    ) -> str:
        """See :meth:`_why_kept`, which asks this about some of the rounds. The calls of one are added to ``calls`` if
        the reason is that it would become many kernels. ``behind``: the round before it, whose values it finds."""

        def rounds() -> Any:
            before = body(over.item(behind)) if behind is not None else None
            return body(over.item(number)) if before is None or before is CONTINUE else before

        region, added = Region(tracer, "a for loop", about.places), tracer.added.copy()
        region.maker, region.is_open, region.is_long = region, False, is_long(tracer, over)
        try:
            way = run(region, rounds)
        except FxliteError:
            Hint.of(tracer, body).unrolls = True  # if that is impossible, the error says why
            return ""
        except Grows as change:
            if change.maker is not region:
                raise
            return f"it has {over.count} rounds, in which a list grows"
        finally:
            tracer.added = added
        size = way.region.size // (1 if behind is None else 2)
        if isinstance(way.outcome, Outcome) and over.count > 1:
            return _LEFT
        if tracer.loops == "unroll":
            return ""
        if tracer.loops == "keep":
            return 'loops="keep"'
        if size * over.count > (_MOST_INSIDE if inside else MOST_UNROLLED):
            return f"unrolled it would have {size} x {over.count} nodes"
        nodes = _calls(way.region.graph.nodes)
        few = _FEW_INSIDE if tracer.bodies else FEW_WRITES
        if what := _why_kernels(nodes, over.count, few):
            calls += nodes
            return f"it has {over.count} rounds, which {what}"
        has_loops = any(_has_loops(node) for node in nodes)
        is_large = over.count > _FEW_ROUNDS or size * over.count > _MOST_INSIDE
        return "there are loops in it" if has_loops and is_large else ""

    def _rounds(
        self,
        rounds: Iterator[Any],
        body: Callable[[Any], Any],
        orelse: Part | None,
        places: Sequence[Place],
        element: Callable[[Any], Any] | None = None,
    ) -> Any:
        """The iterations of a loop in sequence; those after a jump that is not known while tracing are traced as a
        branch, perhaps several times. ``element`` makes the value of a round, if rounds are not these values."""
        for one in rounds:
            outcome = body(one if element is None else element(one))
            if isinstance(outcome, Outcome):
                outcome.flags["CONTINUE"] = False
                outcome = settled(outcome)
            if isinstance(outcome, Outcome):
                left = self._any(outcome.flags.values())
                end = self._ended(_left(outcome))

                def more() -> Any:
                    nonlocal rounds
                    rounds, left_rounds = tee(rounds)  # another attempt begins where this one does
                    return self._rounds(left_rounds, body, orelse, places, element)

                return self.either(left, (partial(_same, end), more), places)
            if outcome is not None and outcome is not CONTINUE:
                return None if outcome is BREAK else outcome
        return orelse() if orelse is not None else None

    def _ended(self, outcome: Outcome) -> Any:
        """The outcome of a loop whose last iteration had this outcome."""
        return settled(Outcome({**outcome.flags, "BREAK": False}, outcome.value))

    def _behind(self, outcome: Outcome, orelse: Part | None, names: Names) -> Any:
        """The outcome of a loop that stayed a loop, including its ``else``."""
        end = self._ended(outcome)
        left = [flag for flag in outcome.flags.values() if flag is not False]
        if orelse is None or any(flag is True for flag in left):
            return end
        if not left:
            return orelse()
        sure = self._ended(_left(outcome))
        return self.either(self._any(left), (lambda: sure, orelse), variables(names, (orelse,)))


def _few_enough(tracer: Any, values: Iterable[Any], count: int, refusal: FxliteError) -> Iterator[Any]:
    """The values of a loop that could not stay a loop, one after another. Raises the error that says why once it is
    clear that unrolled it takes too long to compile."""
    made, seen = 0, len(tracer.graph.nodes)
    for number, value in enumerate(values):
        now = len(tracer.graph.nodes)
        made += sum(map(calls_in, _newest(tracer.graph, now - seen)))
        seen = now
        if number and made * count > _MOST_FORCED * number:
            tracer.is_too_long = True
            raise refusal
        yield value


def _sampled(count: int) -> list[int]:
    """The rounds of a loop that are tried. One suffices for a short loop: the middle one, since in the first an inner
    loop may have no rounds. Those of a long one may differ in what conditions on their numbers choose, so that some in
    no regular order are tried, too."""
    tried = _TRIED if count > _MANY_ROUNDS else 1
    return list(dict.fromkeys(int(count * ((0.5 + k * _GOLDEN) % 1)) for k in range(tried)))


def _same(outcome: Any) -> Any:
    return outcome


def _nothing() -> None:
    """A part that does not exist."""


def _variables(parts: Sequence[Callable[..., Any]], names: Names, exposed: Names, later: Names) -> Variables:
    return Variables(variables(names, parts), frozenset(exposed), frozenset(later))


def _is_inside(tracer: Any) -> bool:
    """Whether a loop that stays a loop is being traced."""
    return any(isinstance(body, Region) and isinstance(body.maker, Loop) for body in tracer.bodies)


def _why_kernels(calls: Sequence[Any], count: int, few_writes: int) -> str:
    """What the calls of a round do that makes many kernels of ``count`` unrolled rounds; empty if they are not many,
    or unrolling helps one of the calls."""
    alone = next((node.target.name for node in calls if node.target.stands_alone), None)
    if alone is not None and count > _FEW_ALONE:
        return f"compute {alone}, which unrolling does not help"
    if any(node.target.kind in _LARGE and _rank(node) > 1 for node in calls):
        return ""
    writes = sum(node.target.writes_part or node.target.kind == "scatter" for node in calls)
    if writes * count > FEW_WRITES or (writes and count > few_writes):
        return "write into arrays"
    if sum(node.target is lookup("cond") for node in calls) * count > _MANY_ROUNDS:
        return "have conditions"
    moves = count > _MANY_ROUNDS and any(node.target.kind != "pointwise" and _rank(node) for node in calls)
    return "read arrays at other places" if moves else ""


def _kinds_of_arrays(calls: Iterable[Any]) -> frozenset[Any]:
    """The types of the arrays that calls compute. If they differ from round to round, a loop that stays one computes
    each part of an array as the whole array under a mask."""
    return frozenset(str(node.type) for node in calls if _rank(node))


def _rank(node: Any) -> int:
    return getattr(node.type, "rank", 0)


def _newest(graph: Any, count: int) -> Iterable[Any]:
    """The last ``count`` nodes of a graph, the last one first; none if there are fewer nodes than before, because what
    follows a condition in a loop is traced in another graph than what precedes it."""
    return islice(reversed(graph.nodes), max(0, count))


def _calls(nodes: Iterable[Any]) -> list[Any]:
    return [node for node in nodes if node.op == "call_function"]


def _has_loops(node: Any) -> bool:
    return node.op == "call_function" and "body_fn" in node.kwargs


CALLERS["flow"] = Flow("flow")


LOOPS = ("auto", "keep", "unroll")


class LoopTooLong(TraceError):
    """Unrolling a loop would take very many nodes."""


class Capturing:
    """The part of a tracer that controls how the program is captured."""

    graph: Graph
    #: Whether the program's functions are captured, so that arrays that it makes are traced; see
    #: :mod:`fxlite.tracing.capture`.
    captures = True
    #: Whether a subclass decides what ``if x`` does, so that no condition is captured.
    decides_bools = False

    def __init__(self, loops: str) -> None:
        """Raises OptionError unless ``loops`` is one of :data:`LOOPS`."""
        if loops not in LOOPS:
            raise OptionError(f"loops={loops!r}: give one of {', '.join(map(repr, LOOPS))}")
        #: Which loops stay loops: "auto", those that would become long if unrolled; "keep" or "unroll", all or none
        #: of those whose rounds are known.
        self.loops = loops
        self.captures_flow, self._measures = False, True
        #: Whether lists that long loops change get rows, and whether one did.
        self.keeps_lists, self.lists_have_rows = True, False

    def begin_capture(self) -> None:
        """Called at the start of a trace."""
        #: Whether a condition, or anything, asked for a value that is not known: the program may have caught the
        #: error.
        self.needs_flow = self.was_asked = False
        #: The number of ``try`` statements of the program that are running, and an error that one may have caught.
        self.trying = 0
        self.is_too_long = False  # whether the trace ended because a loop that cannot stay one is too long
        self.swallowed: FxliteError | None = None
        self._rounds_around = 1  # those of all measured loops that are running, multiplied
        self.asserting = 0  # the number of ``assert`` statements around the running code
        #: The texts that variables may be, with their numbers.
        self.texts: dict[str, int] = {}
        #: How many elements were added to lists with rows, by the ids of the lists.
        self.added: Any = Counter()
        #: Facts found by tracing loops, by the code of their bodies; and what became of statements: (statement,
        #: text) by place.
        self.loop_hints: dict[Any, Any] = {}
        self.notes: dict[Location | None, tuple[str, str]] = {}

    def captured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of the program in the form in which it is run."""
        if not self.captures:
            return function
        return captured(function, "flow" if self.captures_flow else "")

    def attempts(self, trace: Callable[[], None]) -> None:
        """Trace the program, and if that fails, trace it with captured control flow."""
        self.captures_flow, self._measures = self.loops == "keep", self.loops == "auto"
        self.keeps_lists, self.lists_have_rows = self.loops != "unroll", False
        first: Exception | None = None
        try:
            trace()
            if not (self.was_asked and self.captures) or self.captures_flow:
                self._check()
                return
        except Exception as error:
            if not (self.needs_flow and self.captures) or self.captures_flow:
                raise
            first = error
        self.captures_flow = True
        try:
            try:
                trace()
                self._check()
            except FxliteError as error:
                if not self.lists_have_rows or self.is_too_long:
                    raise
                self.keeps_lists = False  # what the program does with such a list may need it unrolled
                try:
                    trace()
                    self._check()
                except FxliteError:
                    if self.is_too_long:
                        raise error from None
                    raise
            return
        except FxliteError:
            if not isinstance(first, LoopTooLong):
                raise
        self.captures_flow = self._measures = False
        trace()

    def _check(self) -> None:
        """Raise an error of the trace that the program has caught."""
        if self.swallowed is not None:
            raise self.swallowed

    def decide(self, value: Any) -> bool:
        """The truth of a condition in captured control flow, if a subclass decides what ``if x`` does."""
        return bool(value)

    def note_statement(self, statement: str, text: str) -> None:
        """Record in the ledger what became of a statement of the program."""
        self.notes[here(2)] = statement, text

    @property
    def measures_loops(self) -> bool:
        """Whether loops are measured while they are unrolled."""
        return self._measures

    def measured(self, values: Iterable[Any], count: int, few: bool) -> Iterator[Any]:
        """The values of a loop with ``count`` iterations, one after another. Raises LoopTooLong once it is clear that
        all iterations would take very many nodes, also with those of the loops around it. ``few``: so few iterations
        that more is allowed."""
        before, most = len(self.graph.nodes), MOST_UNROLLED * (2 if few else 1)
        around = _SURELY_LONG // self._rounds_around
        self._rounds_around *= max(1, count)
        try:
            for number, value in enumerate(values):
                made = len(self.graph.nodes) - before
                if number and made * count > min(most, around) * number:
                    self.needs_flow = True
                    raise LoopTooLong(f"{count} rounds of a loop would take {made // number} nodes each")
                first = _calls(_newest(self.graph, made if number == 1 and not few else 0))
                if what := _why_kernels(first, count, FEW_WRITES):
                    self.needs_flow = True
                    raise LoopTooLong(f"{count} rounds of a loop {what}")
                yield value
        finally:
            self._rounds_around //= max(1, count)

    def measured_while(self) -> Callable[[Any], Any]:
        """A function for the conditions of a ``while`` statement, which gives them back. Raises LoopTooLong once its
        rounds have taken very many nodes."""
        rounds, before, last = -1, len(self.graph.nodes), 0

        def asked(test: Any) -> Any:
            nonlocal rounds, last
            made, rounds = max(0, len(self.graph.nodes) - before), rounds + 1
            if made > min(MOST_UNROLLED, _SURELY_LONG // self._rounds_around):
                self.needs_flow = True
                raise LoopTooLong(f"{rounds} rounds of a loop take {made} nodes")
            new = _calls(_newest(self.graph, made - last))
            if what := _why_kernels(new, rounds, FEW_WRITES):
                self.needs_flow = True
                raise LoopTooLong(f"{rounds} rounds of a loop {what}")
            last = made
            return test

        return asked
