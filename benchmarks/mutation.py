"""Mutants of a source: every copy of it with one change by an operator of cosmic-ray."""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterator
from dataclasses import dataclass

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

_ARITHMETIC = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Pow_Mul", "Mod_Mul")
_BITS = ("BitAnd_BitOr", "BitOr_BitAnd")
_COMPARISONS = (
    *("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt"),
    *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
)
OPERATORS = (
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in (*_ARITHMETIC, *_BITS)),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in _COMPARISONS),
    *(f"core/ReplaceUnaryOperator_Delete_{sign}" for sign in ("USub", "Not", "Invert")),
    *(f"core/Replace{change}" for change in ("TrueWithFalse", "FalseWithTrue", "AndWithOr", "OrWithAnd")),
    *(f"core/Replace{change}" for change in ("BreakWithContinue", "ContinueWithBreak")),
    *(f"core/{name}" for name in ("AddNot", "NumberReplacer", "ZeroIterationForLoop")),
)


@dataclass(frozen=True)
class Mutant:
    """One change: the file, its text with the change, and where and what it is, for people."""

    module: str
    text: str
    where: str
    before: str
    after: str


def mutants_of(sources: dict[str, str], rng: random.Random) -> Iterator[Mutant]:
    """Yield all mutants of files, given as name to text, that mean something else than these, in a random order."""
    seen = {(module, _meaning(source)) for module, source in sources.items()}
    places = []
    for module, source in sources.items():
        tree = get_ast(source)
        for name in OPERATORS:
            operator = get_operator(name)()
            count = sum(1 for node in ast_nodes(tree) for _ in operator.mutation_positions(node))
            places += [(module, operator, occurrence) for occurrence in range(count)]
    rng.shuffle(places)
    for module, operator, occurrence in places:
        text = mutate_code(sources[module], operator, occurrence)
        meaning = _meaning(text)
        if meaning is not None and (module, meaning) not in seen:
            seen.add((module, meaning))
            yield _described(module, sources[module], text)


_NOT = [(ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
_OPPOSITES = dict(_NOT) | {negated: plain for plain, negated in _NOT}


class _Plain(ast.NodeTransformer):
    """Takes out what is not mutated: annotations, decorators, f-strings; and the two ways to say ``not a < b``."""

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list, node.returns = [], None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.decorator_list = []
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        of = node.operand
        if isinstance(node.op, ast.Not) and isinstance(of, ast.Compare) and len(of.ops) == 1:
            return self.visit(ast.Compare(of.left, [_OPPOSITES[type(of.ops[0])]()], of.comparators))
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("")


def _meaning(source: str) -> str | None:
    """Return what two sources have in common exactly if they differ in nothing that is mutated; None if not Python."""
    try:
        return ast.dump(_Plain().visit(ast.parse(source)))
    except SyntaxError:
        return None


def _described(module: str, source: str, text: str) -> Mutant:
    old, new = source.splitlines(), text.splitlines()
    changes = [c for c in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes() if c[0] != "equal"]
    _, first, last, start, stop = changes[0]
    inside = [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.lineno <= first + 1 <= (node.end_lineno or 0)
    ]
    where = f"{module}:{first + 1} {'.'.join(inside)}".rstrip()
    before, after = (" ".join(line.strip() for line in part) for part in (old[first:last], new[start:stop]))
    return Mutant(module, text, where, before, after)
