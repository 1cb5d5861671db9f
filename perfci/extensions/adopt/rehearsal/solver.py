"""The sides with which function and reference take a call: the cause of what they raise is found, and solved.

Every side has another prime as its size, so that a number in a comparison or in an error tells what it is made of.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfci.extensions.adopt.rehearsal.axes import (
    Call,
    Form,
    find_shapes,
    list_names,
    number_of,
    write_inputs,
    write_tuple,
)
from perfci.extensions.adopt.rehearsal.sizes import Trace, Tree

Monomial = tuple[int, ...]  # variables, in order
Term = Mapping[Monomial, int]  # a sum of products of variables, and of a number each
Change = Mapping[int, Term]  # variable -> what it is in others

_PRIMES = (
    37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157,
    163, 167, 173, 179, 181, 191, 193, 197, 199, 211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281,
)  # fmt: skip
_MOST_CALLS = 120  # of one candidate
_MOST_DEPTH = 24
_LAST = 6  # comparisons and divisions that are looked at, the last first
_LISTED = (64, 32, 16, 128)  # sizes of those that a function takes alone
_MOST_FACTOR = 1 << 12
_MOST_PARTS = 3
_MOST_RANK = 6
_MOST_OPTION = 16  # of a number that is no size
_BLOCK = re.compile(r"group|block|chunk|tile|window|pack", re.IGNORECASE)

_ONE = "cannot be converted to Scalar"
_RANKS = (
    re.compile(r"too many indices for tensor of dimension (?P<had>\d+)"),
    re.compile(r"not enough values to unpack \(expected (?P<rank>\d+), got (?P<had>\d+)\)"),
    re.compile(r"too many values to unpack \(expected (?P<rank>\d+)"),
    re.compile(r"(?:must be|expected|Expected) (?:a )?(?P<rank>\d)-?D"),
    re.compile(r"subscripts in the equation \((?P<rank>\d+)\)"),
    re.compile(r"Dimension out of range \(expected .*\[-(?P<had>\d+), \d+\], but got (?P<at>-?\d+)\)"),
    re.compile(rf"(?P<had>){_ONE}"),
    re.compile(r"(?P<had>)(tuple index out of range|rank mismatch)"),
)
_RESHAPED = re.compile(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
_SHAPES = re.compile(r"\[([\d, ]+)\]")
_PLACES = re.compile(r"(dimension|number|operand|argument|batch|mat|self)\W?\d+")
_NUMBER = re.compile(r"\d+")


@dataclass
class Tries:
    """What was tried with one way to call the reference."""

    keys: set[str] = field(default_factory=set)  # of sides that are not tried again
    is_taken: bool = False  # the function took a call, and the reference was asked, at the last candidate


@dataclass(frozen=True)
class Sides:
    """The sides of a call's tensors, and its numbers that are sizes."""

    call: Call
    sides: Mapping[str, tuple[Term, ...]]
    numbers: Mapping[str, Term]  # argument -> what it is, if it is a size
    used: int  # variables so far

    @property
    def key(self) -> str:
        """Equal for what takes the same call."""
        tensors = self.call.tensors
        values = {name: value for name, value in self.call.given.items() if name not in tensors}
        kinds = [(tensor.dtype, tensor.text) for tensor in tensors.values()]
        return repr((self.write(self.name([self.call])), self.numbers, values, kinds))

    @property
    def is_simple(self) -> bool:
        """Whether every side is a sum of few products, of few variables and a number that a block may have."""
        terms = [*itertools.chain(*self.sides.values()), *self.numbers.values()]
        parts = [part for term in terms for part in term.items()]
        few = all(len(term) <= _MOST_PARTS for term in terms) and all(len(one) <= _MOST_PARTS for one, _ in parts)
        return few and self.used <= len(_PRIMES) and all(abs(factor) <= _MOST_FACTOR for _, factor in parts)

    def list_variables(self) -> list[int]:
        """The variables, in the order of the tensors."""
        terms = itertools.chain(*self.sides.values(), self.numbers.values())
        return [*dict.fromkeys(variable for term in terms for monomial in term for variable in monomial)]

    def name(self, calls: Sequence[Call]) -> dict[int, str]:
        """The variables' names as axes: that of the first side that has it."""
        first = {
            variable: (name, at - len(terms))
            for name, terms in reversed([*self.sides.items()])
            for at, term in reversed([*enumerate(terms)])
            for monomial in sorted(term, reverse=True)
            for variable in monomial
        }
        shown = [variable for variable in self.list_variables() if variable in first]
        names = dict(zip(shown, list_names([first[variable] for variable in shown], calls), strict=True))
        alone = {one: name for name, term in self.numbers.items() for part in term for one in part if one not in names}
        return {**names, **{variable: f"{name}_" for variable, name in alone.items()}}

    def write(self, names: Mapping[int, str]) -> dict[str, str]:
        """The shapes as text."""
        return {name: write_tuple([write_term(term, names) for term in terms]) for name, terms in self.sides.items()}

    def make_form(self, start: Form, calls: Sequence[Call] = ()) -> tuple[Form, dict[str, Any]]:
        """The form, and a case in which every axis has a prime as its size. calls: those that have it."""
        names = self.name(calls := calls or [self.call])
        numbers = {name: write_term(term, names) for name, term in self.numbers.items()}
        numbers = {
            name: write_tuple([text]) if isinstance(self.call.given[name], tuple) else text
            for name, text in numbers.items()
        }
        form = write_inputs(start, tuple(names.values()), self.write(names), numbers, calls)
        return form, {name: _PRIMES[variable] for variable, name in names.items()}

    def settle(self) -> Sides:
        """The sides without numbers that no tensor's side depends on: they are as they were given."""
        of_sides = {one for terms in self.sides.values() for term in terms for monomial in term for one in monomial}
        numbers = {
            name: term for name, term in self.numbers.items() if {one for part in term for one in part} <= of_sides
        }
        return replace(self, numbers=numbers)

    def change(self, change: Change, used: int) -> Sides:
        """The sides with other terms in the place of variables."""
        return replace(
            self,
            sides={name: tuple(put(term, change) for term in terms) for name, terms in self.sides.items()},
            numbers={name: put(term, change) for name, term in self.numbers.items()},
            used=used,
        )

    def lay(self, name: str, axis: int) -> Sides:
        """The sides with a tensor whose elements lie side by side along another axis."""
        tensor = self.call.tensors[name]
        text = f"torch.randn({{shape}}, generator=generator, dtype={{dtype}}, device=device).transpose({axis}, -1)"
        laid = replace(tensor, text=f"{text}.contiguous().transpose({axis}, -1)")
        return replace(self, call=replace(self.call, given={**self.call.given, name: laid}))

    def turn(self, name: str, rank: int) -> Sides:
        """The sides with a tensor of another number of axes."""
        tensor = self.call.tensors[name]
        other = replace(tensor, shape=(tensor.shape[-1:] or (64,)) * rank, marks=())
        call = replace(self.call, given={**self.call.given, name: other})
        terms = tuple[Term, ...]({(self.used + at,): 1} for at in range(rank))
        return replace(self, call=call, sides={**self.sides, name: terms}, used=self.used + rank)


def write_term(term: Term, names: Mapping[int, str]) -> str:
    """A term as text, such as 8 * cols or rows + 1."""
    parts = list[str]()
    for monomial, factor in sorted(term.items(), key=lambda part: (-len(part[0]), part[0])):
        product = [names[variable] for variable in monomial]
        product = product if factor == 1 and product else [str(factor), *product]
        parts.append(" * ".join(product))
    return " + ".join(parts).replace("+ -", "- ") or "0"


def _size_of(term: Term) -> int:
    """The size of a side in a case in which every variable is a prime."""
    return sum(factor * math.prod(_PRIMES[variable] for variable in monomial) for monomial, factor in term.items())


def begin(call: Call, *, alike: bool = False) -> Sides:
    """Every side of the call's tensors on its own, but for those that the text gives a size.

    alike: those of one size are one.
    """
    variables, sides = dict[Any, int](), dict[str, tuple[Term, ...]]()

    def make(place: Any, size: int) -> Term:
        return {(variables.setdefault(size if alike else place, len(variables)),): 1}

    for name, tensor in call.tensors.items():
        marks = tensor.marks or ("{}",) * len(tensor.shape)
        sides[name] = tuple(
            make((name, at), size) if mark == "{}" else {(): int(mark)}
            for at, (mark, size) in enumerate(zip(marks, tensor.shape, strict=True))
        )
    # A block's size stays as it is: it is a constant of the kernel.
    numbers = {
        name: make(name, number_of(value))
        for name, value in call.given.items()
        if number_of(value) > _MOST_OPTION and not _BLOCK.search(name)
    }
    return Sides(call, sides, numbers, len(variables))


def find_form(start: Form, calls: Sequence[Call]) -> tuple[Form, list[Call], bool]:
    """Returns the form of the calls, the calls that have it, and whether kernel and reference take distinct sizes."""
    ranks = [[len(tensor.shape) for tensor in call.tensors.values()] for call in calls]
    if any(rank != ranks[0] for rank in ranks) and (shapes := find_shapes(start, calls)):
        form = write_inputs(start, ("shape",), shapes, {}, calls)
        return form, list(calls), form.try_case(form.make_distinct()) is not None
    calls = [call for call, rank in zip(calls, ranks, strict=True) if rank == ranks[0]]
    first = max(calls, key=_count_sizes)  # which tells most of its sides apart
    solved = solve(start, first, Tries(), is_taken=True)
    sides = solved or begin(first, alike=True).settle()
    form, _ = sides.make_form(start)
    alike = [call for call in calls if form.describes(call)]
    form, _ = sides.make_form(start, alike)
    return form, alike, bool(solved or (form.axes and form.count_programs(first) is not None))


def _count_sizes(call: Call) -> int:
    return len({size for tensor in call.tensors.values() for size in tensor.shape})


def solve(start: Form, call: Call, tries: Tries, *, is_taken: bool = False) -> Sides | None:
    """Returns sides of a call that function and reference take with distinct sizes. None if none are found.

    is_taken: the call is no guess, so that it has these sides.
    """
    first, tried = begin(call), 0
    seen, tries.is_taken = tries.keys, False

    def go(sides: Sides, cause: Cause, depth: int, *, is_stuck: bool = False) -> Sides | None:
        nonlocal tried
        for other in _list_repairs(sides, cause):
            if not other.is_simple or (key := other.key) in seen:
                continue
            if is_taken and not (other.call is call and other.make_form(start)[0].describes(call)):
                continue
            if tried > _MOST_CALLS or start.rehearsal.is_late:
                return None
            seen.add(key)
            tried += 1
            after = _try(start, other)
            if after is None:
                return other
            tries.is_taken |= after.trace.in_reference
            is_further = after.reached > cause.reached
            is_turned = other.call is not sides.call and str(after.error) != str(cause.error)
            # A side that is divided may be one step of two.
            is_half = other.used > sides.used and not is_stuck
            is_other = after.reached == cause.reached and (after.kind != cause.kind or is_turned or is_half)
            if depth and (is_further or is_other):
                solved = go(other, after, depth - 1, is_stuck=not is_further)
                if solved:
                    return solved
        return None

    if first.key in seen:
        return None
    seen.add(first.key)
    cause = _try(start, first)
    tries.is_taken = cause is None or cause.trace.in_reference
    solved = first if cause is None else go(first, cause, _MOST_DEPTH)
    settled = solved and solved.settle()
    return settled if settled and settled.list_variables() else None


@dataclass(frozen=True)
class Cause:
    """Why a call is not taken: what was raised, or the shapes of outputs that differ."""

    trace: Trace
    error: Exception | None
    unlike: tuple[tuple[int, int], ...] = ()  # sides of the outputs of both that differ

    @property
    def reached(self) -> tuple[int, ...]:
        """How far the call got."""
        return self.error is None, self.trace.in_reference, -len(self.unlike), self.trace.calls

    @property
    def kind(self) -> str:
        """The error without its numbers: a call of torch may ask for one thing after the other."""
        return _NUMBER.sub("", str(self.error or ""))


def _try(start: Form, sides: Sides) -> Cause | None:
    """Why kernel or reference do not take the sides. None if both do."""
    form, params = sides.make_form(start)
    going = start.rehearsal
    causes = list[Cause]()
    for going.truth in (False, True):
        going.trace, error = Trace(), None
        try:
            done = form.call_dry(params)
            if done.fits:
                return None
        except Exception as raised:  # whatever other people's code raises
            error = raised
        finally:
            trace, going.trace = going.trace, None
        unlike = () if error else tuple(_list_unlike(done.kernel or done.given, done.reference or ()))
        causes.append(Cause(trace, error, unlike))
        if not isinstance(error, AssertionError):
            break
    return max(causes, key=lambda cause: cause.reached)


def _list_unlike(outputs: Sequence[tuple[int, ...]], expected: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Yields the sides that differ of outputs with as many axes."""
    left = [*outputs]
    for shape in expected:
        alike = [one for one in left if len(one) == len(shape)]
        if not alike:
            yield -1, -1
            continue
        nearest = max(alike, key=lambda one: sum(map(int.__eq__, one, shape)))
        left.remove(nearest)
        yield from ((int(one), int(other)) for one, other in zip(nearest, shape, strict=True) if one != other)


# --- causes -----------------------------------------------------------------------------------------------------------


def _list_repairs(sides: Sides, cause: Cause) -> Iterator[Sides]:
    """Yields the sides such that what failed may hold, the likeliest first."""
    solver, text = _Solver(sides), str(cause.error or "")
    if isinstance(cause.error, TypeError) and "argument" in text:
        return  # no size makes up for one that is missing, or not known
    yield from _list_ranks(sides, cause, text)
    sought = [*dict.fromkeys(itertools.takewhile(lambda note: note[0] == "in", reversed(cause.trace.notes)))][:_LAST]
    if sought[1:]:  # len({*x.shape}) == 1
        yield from solver.equate(*((sought[0][1], note[1]) for note in sought[1:]))
    for note, size in itertools.product(sought[:1], _LISTED):
        yield from solver.equate((note[1], size))
    if isinstance(cause.error, ValueError) and "unpack" in text and cause.trace.parts:
        wanted = int(_NUMBER.findall(text)[0])  # as r, g, b = x.unbind(1)
        yield from solver.equate((cause.trace.parts, wanted))
    notes = [*dict.fromkeys(reversed(cause.trace.notes))][:_LAST]
    raised = [note for note in notes if note[0] not in {"%", "in"}]
    # Of x in [32, 64, 128] or x == y the listed sizes are tried first, as all of y would be one part.
    raised = sorted(raised, key=lambda note: note[:2] != raised[0][:2] or note[2] not in _LISTED)
    # What is rounded up needs no whole number.
    divided = [note for note in notes if note[0] == "%" and not (type(note[1]) is tuple and note[1][0] in "+-")]
    is_torch = bool(cause.trace.failed)
    if not is_torch:
        for sign, left, right in raised:
            yield from solver.reverse(sign, left, right)
    if cause.unlike:
        yield from solver.equate(*cause.unlike)
    if reshaped := _RESHAPED.search(text):
        parts = [int(part) for part in reshaped[1].split(",")]
        yield from solver.reshape(parts, int(reshaped[2]), *cause.trace.shapes[:1])
    for _, left, right in divided:
        yield from solver.reverse("==", ("%", left, right), 0)
    numbers = [int(number) for number in _NUMBER.findall(_PLACES.sub("", text))] if cause.error else []
    shapes = [[*map(int, _NUMBER.findall(shape))] for shape in _SHAPES.findall(text)]
    given = [*itertools.combinations(cause.trace.shapes, 2)]
    if cause.trace.is_product and len(given) == 1:
        ways = [[*_zip_sides(given[0][0][:-2], given[0][1][:-2]), (given[0][0][-1], given[0][1][-2:][0])]]
    else:
        ways = [_zip_sides(*pair) for pair in (*given * ("tensor b" in text), *itertools.pairwise(shapes))]
    places = sorted(itertools.combinations(range(len(numbers)), 2), key=lambda pair: pair[1] - pair[0])
    ways += [[(numbers[a], numbers[b])] for a, b in places if numbers[a] != numbers[b]]
    ways += [_zip_sides(*pair) for pair in given]
    for one, other in itertools.chain(*ways):  # as x[..., ::2] and x[..., 1::2]
        yield from solver.reverse("==", ("%", one + other, 2), 0) if abs(one - other) == 1 else ()
    for way in ways:
        alike = [pair for pair in way if min(pair) > 1 and pair[0] != pair[1]]
        yield from solver.equate(*alike) if alike else ()
    if is_torch:
        for sign, left, right in raised:
            yield from solver.reverse(sign, left, right)
    further = [note[1] for note in notes[1:] if note[0] == "in"]
    for tree, size in itertools.product(further, _LISTED):
        yield from solver.equate((tree, size))


def _zip_sides(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    """The sides of two shapes at the same place, counted from the end."""
    return [*zip(reversed(one), reversed(other), strict=False)]


def _list_ranks(sides: Sides, cause: Cause, text: str) -> Iterator[Sides]:
    """Yields the sides with another number of axes of a tensor, if an error or a comparison is about that."""
    ranks = {name: len(terms) for name, terms in sides.sides.items()}
    for sign, left, right in reversed(cause.trace.notes[-_LAST:]):
        if type(left) is tuple and left[0] == "rank" and left[1] in ranks and type(right) is int:
            wanted = {"==": right, "!=": right, "<": right, ">=": right, ">": right + 1}.get(sign, right)
            if wanted != ranks[left[1]] and 0 <= wanted <= _MOST_RANK:
                yield sides.turn(left[1], wanted)
    if (reshaped := _RESHAPED.search(text)) and reshaped[1].startswith("-1"):
        wanted = reshaped[1].count(",") + 1  # what is flattened had as many axes at least
        for name in dict.fromkeys(cause.trace.failed):
            if ranks.get(name, wanted) < wanted <= _MOST_RANK:
                yield sides.turn(name, wanted)
    match = next((match for form in _RANKS if (match := form.search(text))), None)
    if match is None:
        return
    facts = {key: int(value) for key, value in match.groupdict().items() if value}
    asked, had = cause.trace.asked
    names = [*dict.fromkeys(name for name in (*cause.trace.failed, asked) if name in ranks)]
    if _ONE in text:
        facts, count = {"rank": 0}, int(_NUMBER.findall(text)[0])
        names = [name for name, terms in sides.sides.items() if math.prod(map(_size_of, terms)) == count]
    for name in sorted(names, key=lambda name: ranks[name] != facts.get("had", had)):
        at = facts.get("at", 0)
        wanted = facts.get("rank", at + 1 if at > 0 else -at or ranks[name] + 1)
        if wanted != ranks[name] and wanted <= _MOST_RANK:
            yield sides.turn(name, wanted)


class _Solver:
    """Solves equations of sizes for the variables of sides."""

    def __init__(self, sides: Sides) -> None:
        self._sides, self._used = sides, sides.used
        self._variables = sides.list_variables()
        self._change = dict[int, Term]()  # that divisions ask for

    def equate(self, *pairs: tuple[Tree, Tree]) -> Iterator[Sides]:
        """Yields the sides for which both sizes of each pair are the same."""
        explained = [(self._explain(one), self._explain(other)) for one, other in pairs]
        for (left, right), *more in itertools.product(*(itertools.product(*pair) for pair in explained)):
            before = {**self._change}
            for answer in self._equate(put(left, before), put(right, before)) if left != right else ({},):
                self._change = {**before}
                self._add(answer)
                for one, other in more:
                    self._add(next(self._equate(put(one, self._change), put(other, self._change)), {}))
                if self._change:
                    yield self._sides.change(self._change, self._used)
            self._change = before

    def _add(self, answer: Change) -> None:
        self._change = {variable: put(term, answer) for variable, term in self._change.items()} | dict(answer)

    def reverse(self, sign: str, left: Tree, right: Tree) -> Iterator[Sides]:
        """Yields the sides for which a comparison has another result."""
        if type(left) is tuple and left[0] == "rank":
            return
        if type(left) is tuple and left[0] == "stride":
            yield from [self._sides.lay(*left[1])] if right == 1 and left[1][0] in self._sides.sides else ()
            return
        yield from self._set(sign, left, right)
        if type(left) is tuple and left[0] == "%" and right == 0:
            for size, by in itertools.product(self._explain(left[1]), self._explain(left[2])):
                yield from self._multiply(size, by)
        elif sign in {"==", "!="} or type(right) is int:
            yield from self.equate((left, right))

    def _set(self, sign: str, left: Tree, right: Tree) -> Iterator[Sides]:
        """Yields the sides with another value of a number that is none of them."""
        if type(left) is tuple and left[0] == "%" and type(right) is int and type(left[2]) is int:
            is_number = type(left[1]) is tuple and left[1][0] == "number"
            left, right = left[1], math.lcm(left[2], left[1][2]) if is_number else right
        if type(left) is int:
            left, right = right, left
        if type(left) is tuple and left[0] == "number" and type(right) is int and left[1] not in self._sides.numbers:
            given = {**self._sides.call.given, left[1]: right}
            if given[left[1]] != left[2]:
                yield replace(self._sides, call=replace(self._sides.call, given=given))

    def reshape(self, parts: Sequence[int], size: int, shape: Sequence[int] = ()) -> Iterator[Sides]:
        """Yields the sides for which a tensor of this size has the shape of these parts. shape: that it has."""
        explained = [self._explain(part) for part in (size, *parts) if part > 0]
        if not all(explained):
            return
        whole, *factors = (terms[0] for terms in explained)
        one: Term = {(): 1}
        product = functools.reduce(multiply, factors, one)
        if -1 in parts:
            last = parts[parts.index(-1) + 1 :]  # as x.view(-1, cols): the last sides are likely to stay
            unlike = [pair for pair in _zip_sides(shape, last) if pair[0] != pair[1]]
            yield from self.equate(*unlike) if unlike else ()
            yield from self._multiply(whole, product)
        else:
            for answer in self._equate(whole, product):
                yield self._sides.change(answer, self._used)

    def _explain(self, tree: Tree) -> list[Term]:
        """What a size may be in variables."""
        if type(tree) is int:
            return self._explain_number(tree)
        if tree[0] in {"number", "rank", "stride"}:
            return self._explain_number(tree[2]) if tree[0] != "rank" else []
        sign, left, right = tree
        one, other = (self._explain(side)[:1] for side in (left, right))
        if not one or not other:
            return []
        if sign in "+-":
            return [add(one[0], other[0], 1 if sign == "+" else -1)]
        if sign == "*":
            return [multiply(one[0], other[0])]
        return [divided] if sign == "//" and (divided := self._divide(one[0], other[0])) is not None else []

    def _explain_number(self, number: int) -> list[Term]:
        factors, rest = list[int](), number
        for variable in self._variables:
            while rest and rest % _PRIMES[variable] == 0:
                factors.append(variable)
                rest //= _PRIMES[variable]
        terms: list[Term] = []
        if factors and rest <= _MOST_FACTOR:
            terms.append({tuple(sorted(factors)): rest})
        sizes = {_PRIMES[variable]: variable for variable in self._variables}
        terms += [
            term for term in itertools.chain(*self._sides.sides.values()) if len(term) > 1 and _size_of(term) == number
        ]
        if not factors:
            terms.append({(): number})
            terms += [{(sizes[number - step],): 1, (): step} for step in (1, -1) if number - step in sizes]
            terms += [
                {(one,): 1, (other,): 1}
                for one, other in itertools.combinations(self._variables, 2)
                if _PRIMES[one] + _PRIMES[other] == number
            ]
        return terms

    def _divide(self, term: Term, by: Term) -> Term | None:
        """The quotient. Where there is a rest, a side becomes a multiple."""
        if len(by) != 1:
            return None
        ((variables, number),) = by.items()
        quotient: Term = {}
        for monomial, factor in term.items():
            if not monomial and abs(factor) < number:
                continue  # as in (size + 127) // 128
            rest, missing = [*monomial], list[int]()
            for variable in variables:
                (rest.remove if variable in rest else missing.append)(variable)
            left = number // math.gcd(number, factor)
            if missing or left > 1:
                target = next((variable for variable in rest if variable not in self._change), None)
                if target is None:
                    return None
                fresh, self._used = self._used, self._used + 1
                self._change[target] = {tuple(sorted([*missing, fresh])): left}
                rest[rest.index(target)] = fresh
            quotient = add(quotient, {tuple(sorted(rest)): factor * left // number})
        return quotient

    def _multiply(self, term: Term, by: Term) -> Iterator[Sides]:
        """Yields the sides for which a term is a multiple of another."""
        before = {**self._change}
        if self._divide(term, by) is not None and self._change:
            yield self._sides.change(self._change, self._used)
        self._change = before

    def _equate(self, left: Term, right: Term) -> Iterator[Change]:
        """Yields what variables are if both terms are the same. Nothing if they are already."""
        difference = add(left, right, -1)
        if not difference:
            return
        shared = _list_shared([*difference])
        difference = {_leave(monomial, shared): factor for monomial, factor in difference.items()}
        whole = math.gcd(*difference.values())
        difference = {monomial: factor // whole for monomial, factor in difference.items()}
        alone = [one[0] for one in difference if len(one) == 1]
        alone = [one for one in alone if sum(one in monomial for monomial in difference) == 1]
        for variable in sorted(alone, reverse=True):
            factor = difference[(variable,)]
            rest = {one: -part for one, part in difference.items() if one != (variable,)}
            if all(part % factor == 0 for part in rest.values()):
                answer = {one: part // factor for one, part in rest.items()}
                if all(part > 0 for one, part in answer.items() if one) and (answer.get((), 1) > 0 or len(answer) > 1):
                    yield {variable: answer}
        if len(difference) == 2 and alone:
            yield from self._share(alone, difference)
        if len(difference) == 2 and {*map(abs, difference.values())} == {1}:  # a * b = c * d
            one, other = difference
            if len(one) == len(other) > 1:
                pairs = [*zip(one, other, strict=True)]
                yield {max(pair): {(min(pair),): 1} for pair in pairs}
                for pair in pairs:
                    yield {max(pair): {(min(pair),): 1}}

    def _share(self, alone: Sequence[int], difference: Term) -> Iterator[Change]:
        """Yields what variables are of 8 * a = 3 * b * c, in which neither number divides the other."""
        variable = max(alone)
        ((others, number),) = ((one, part) for one, part in difference.items() if one != (variable,))
        factor = difference[(variable,)]
        if others and number % factor and factor * number < 0:
            fresh, self._used = self._used, self._used + 1
            product = tuple(sorted([*others[:-1], fresh]))
            yield {others[-1]: {(fresh,): abs(factor)}, variable: {product: abs(number)}}


# --- terms ------------------------------------------------------------------------------------------------------------


def add(one: Term, other: Term, factor: int = 1) -> Term:
    """The sum of a term and so many times another."""
    both = {monomial: one.get(monomial, 0) + factor * other.get(monomial, 0) for monomial in {**one, **other}}
    return {monomial: number for monomial, number in both.items() if number}


def multiply(one: Term, other: Term) -> Term:
    """The product of two terms."""
    product: Term = {}
    for (left, first), (right, second) in itertools.product(one.items(), other.items()):
        product = add(product, {tuple(sorted((*left, *right))): first * second})
    return product


def put(term: Term, change: Change) -> Term:
    """A term with others in the place of variables."""
    total: Term = {}
    for monomial, factor in term.items():
        product: Term = {(): factor}
        for variable in monomial:
            product = multiply(product, change.get(variable, {(variable,): 1}))
        total = add(total, product)
    return total


def _list_shared(monomials: Sequence[Monomial]) -> list[int]:
    """The variables that all of them have."""
    return [variable for variable in dict.fromkeys(monomials[0]) if all(variable in one for one in monomials)]


def _leave(monomial: Monomial, shared: Sequence[int]) -> Monomial:
    left = [*monomial]
    for variable in shared:
        left.remove(variable)
    return tuple(left)
