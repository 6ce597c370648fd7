"""Functions that use Python's control flow on numbers, to be run as they are and rewritten."""

from __future__ import annotations

from typing import Any

LOG: list[Any] = []
_TOTAL = 0


def jumps(n: int, limit: int) -> Any:
    total = 0
    for i in range(n):
        if i % 3 == 0:
            continue
        if i > limit:
            break
        total += i
    else:
        total = -total
    while total > 10 and total % 7:
        total -= 3
        if total < 12:
            return "early", total
    return total, i if n else None


def handlers(n: int, limit: int) -> Any:
    try:
        if limit == 2:
            return "two"
        found = 10 / (limit - 3)
    except ZeroDivisionError as error:
        return str(error)
    else:
        found += 1
    finally:
        LOG.append(n)
    with Context() as value:
        if n > value:
            return n, value
    return found


class Context:
    def __enter__(self) -> int:
        LOG.append("enter")
        return 3

    def __exit__(self, *_: Any) -> None:
        LOG.append("exit")


def stores(n: int, limit: int) -> Any:
    a = b = [n, limit]
    b[0] += 5
    (q, a[1]), *rest = (3, 4), 5, 6
    box = Box()
    box.value = box._Box__hidden = n
    box.value += limit
    box.items[n if n < 2 else 0] *= 2
    m: int = n
    first, *box.others, last = range(n + 2)
    x = y = z = m
    x += 1
    a[0:1] = [7, 8]
    del z
    return a, q, rest, box.value, box.items, x, y, first, box.others, last


class Box:
    def __init__(self) -> None:
        self.value, self.items = 0, [1, 2]
        self.__hidden = 1

    def hidden(self) -> Any:
        if self.__hidden:
            self.__hidden += 1
        return self.__hidden


def scopes(n: int, limit: int) -> Any:
    global _TOTAL
    count = 0

    def visit(k: int) -> Any:
        nonlocal count
        if k:
            count += k
            return count
        return [i for i in range(limit) if i % 2 or i > k]

    if n > 2:
        _TOTAL = n
    late = []
    for i in range(3):
        if i != 1:
            late.append(lambda i=i, n=n: (i, n) if n else None)
    return visit(n), visit(0), count, _TOTAL, [f() for f in late], (lambda v: v or "none")(n)


def unbound(n: int, limit: int) -> Any:
    if n > 2:
        value = n
    for j in range(limit):
        last = j
    return value, last


def expressions(n: int, limit: int) -> Any:
    seen = []

    def log(v: Any) -> Any:
        seen.append(v)
        return v

    a = (log(n) and log(limit)) or log("none")
    b = log(0) < log(n) <= log(limit) != log(4)
    c = log(1) if n > limit else log(2)
    d = not n or (n in (1, 2, limit) and n not in [5])
    e = n is None or limit is not None
    if (size := len(seen)) > 3 and n:
        c = size
    while (limit := limit - 1) > 0:
        if limit == 3:
            break
    else:
        c = "else"
    return a, b, c, d, e, seen, size, limit


def nested(n: int, limit: int) -> Any:
    for i in range(n):
        for j in range(limit):
            if i * j == 6:
                return i, j
            if j > i:
                break
            for k in range(3):
                if k == j:
                    continue
                if k + i > 5:
                    return "k", k
        else:
            if i == 4:
                return "else", i
    return None


def matches(n: int, limit: int) -> Any:
    match (n, limit):
        case (0, x):
            return "zero", x
        case (x, y) if x > y:
            result = "more"
        case (1, y) | (y, 1):
            result = f"one and {y}"
        case _:
            result = "other"
    return result


def raises(n: int, limit: int) -> Any:
    if n > 3:
        if limit > 2:
            raise ValueError(n)
        assert limit != 1, f"limit {limit}"
    return n


def generates(n: int, limit: int) -> Any:
    def parts() -> Any:
        for i in range(n):
            if i == limit:
                return
            yield i

    return list(parts()), sum(v for v in parts() if v)


def sees_its_variables(n: int, limit: int) -> Any:
    if n:
        found = n
    return sorted(locals())


FUNCTIONS = [
    jumps,
    handlers,
    stores,
    scopes,
    unbound,
    expressions,
    nested,
    matches,
    raises,
    generates,
    sees_its_variables,
]
