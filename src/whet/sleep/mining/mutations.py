"""Small faults in Python code: changes of one expression that leave everything else in the file as it is."""

import ast
import copy
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum


class Operator(StrEnum):
    """What a fault changes."""

    COMPARISON = "comparison"
    """`<` becomes `<=`, `==` becomes `!=`, `in` becomes `not in`, and so on."""
    OFF_BY_ONE = "off-by-one"
    """A whole number grows by one."""
    SWAPPED_ARGUMENTS = "swapped-arguments"
    """The first two arguments of a call change places."""
    DROPPED_CONDITION = "dropped-condition"
    """One side of an `and` or an `or` is gone, or a `not`."""
    WRONG_DEFAULT = "wrong-default"
    """The default of a parameter is another one."""
    RETURNED_CONSTANT = "returned-constant"
    """A function returns None instead of what it computed."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault in a source file."""

    operator: Operator
    function: str
    """Where it is: `Class.method`."""
    line: int
    """Tests that run this line run the fault."""
    start: int
    end: int
    """Bytes of the source that are replaced."""
    text: bytes

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text + source[self.end :]


_FLIPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def list_mutations(source: bytes, covered: Collection[int]) -> list[Mutation]:
    """Every small fault of the functions in a Python file, on lines that tests run. Files that do not parse have none.

    >>> source = b"def f(n):\\n    return n < 3\\n"
    >>> list_mutations(source, {2})[-1].apply(source)
    b'def f(n):\\n    return n < 4\\n'
    """
    try:
        tree = ast.parse(source.decode())  # positions are those of UTF-8
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for name, function in _list_functions(tree, ""):
        for operator, old, new in _list_changes(function, covered):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
            run = old.lineno if old.lineno in covered else next(filter(covered.__contains__, _body_lines(function)))
            found.append(Mutation(operator, name, run, start, end, new))
    return [one for one in found if _parses(one.apply(source))]


def _list_functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _list_functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from _list_functions(child, prefix)


def _list_changes(function: _Function, covered: Collection[int]) -> Iterator[tuple[Operator, ast.expr, bytes]]:
    if any(line in covered for line in _body_lines(function)):
        yield from _change_defaults(function)
    for node in (inner for statement in function.body for inner in _walk(statement)):
        if getattr(node, "lineno", None) in covered:
            for kind, change in _CHANGES:
                if isinstance(node, kind):
                    yield from change(node)


def _body_lines(function: _Function) -> list[int]:
    return [statement.lineno for statement in function.body]


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node with all below it, without the inside of f-strings: Python 3.11 gives wrong positions there."""
    yield node
    if not isinstance(node, ast.JoinedStr):
        for child in ast.iter_child_nodes(node):
            yield from _walk(child)


def _change_defaults(function: _Function) -> Iterator[tuple[Operator, ast.expr, bytes]]:
    for default in (*function.args.defaults, *function.args.kw_defaults):
        if isinstance(default, ast.Constant):
            match default.value:
                case bool():
                    yield Operator.WRONG_DEFAULT, default, str(not default.value).encode()
                case int():
                    yield Operator.WRONG_DEFAULT, default, str(default.value + 1).encode()
                case str() if default.value:
                    yield Operator.WRONG_DEFAULT, default, b'""'


def _change_comparison(node: ast.Compare) -> Iterator[tuple[Operator, ast.expr, bytes]]:
    if len(node.ops) == 1 and type(node.ops[0]) in _FLIPS:
        changed = copy.copy(node)
        changed.ops = [_FLIPS[type(node.ops[0])]()]
        yield Operator.COMPARISON, node, _unparse(changed)


def _change_number(node: ast.Constant) -> Iterator[tuple[Operator, ast.expr, bytes]]:
    if type(node.value) is int and 0 <= node.value <= 1000:
        yield Operator.OFF_BY_ONE, node, str(node.value + 1).encode()


def _change_call(node: ast.Call) -> Iterator[tuple[Operator, ast.expr, bytes]]:
    if len(node.args) >= 2 and not any(isinstance(one, ast.Starred) for one in node.args[:2]):
        first, second, *rest = node.args
        if ast.dump(first) != ast.dump(second):
            changed = copy.copy(node)
            changed.args = [second, first, *rest]
            yield Operator.SWAPPED_ARGUMENTS, node, _unparse(changed)


def _change_condition(node: ast.BoolOp) -> Iterator[tuple[Operator, ast.expr, bytes]]:
    rest = node.values[:-1]
    changed = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    yield Operator.DROPPED_CONDITION, node, b"(" + _unparse(changed) + b")"


def _change_not(node: ast.UnaryOp) -> Iterator[tuple[Operator, ast.expr, bytes]]:
    if isinstance(node.op, ast.Not):
        yield Operator.DROPPED_CONDITION, node, b"(" + _unparse(node.operand) + b")"


def _change_return(node: ast.Return) -> Iterator[tuple[Operator, ast.expr, bytes]]:
    if node.value is not None and not isinstance(node.value, ast.Constant):
        yield Operator.RETURNED_CONSTANT, node.value, b"None"


_Change = Callable[..., Iterator[tuple[Operator, ast.expr, bytes]]]
_CHANGES: tuple[tuple[type[ast.AST], _Change], ...] = (
    (ast.Compare, _change_comparison),
    (ast.Constant, _change_number),
    (ast.Call, _change_call),
    (ast.BoolOp, _change_condition),
    (ast.UnaryOp, _change_not),
    (ast.Return, _change_return),
)


def _unparse(node: ast.expr) -> bytes:
    return ast.unparse(node).encode()


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True
