"""Sums in plain words, worked out exactly and within bounds; nothing is ever evaluated as code."""

import ast
import re
from fractions import Fraction

_LONGEST = 120  # characters of an expression
_WIDEST = 512  # bits of any number on the way
_HIGHEST_POWER = 64

_LEAD = re.compile(
    r"^(?:(?:so|and|ok|okay|hey|hi|hello|please|well|now|then)\b[,!.]?\s*)*"
    r"(?:(?:can|could|would) you (?:please )?(?:tell me |work out |calculate |compute )?|tell me |do you know )?"
    r"(?P<ask>what(?:'s| is| are| does)|how much (?:is|are|does)|calculate|compute|work out|solve|evaluate)?\s*",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?:\s*(?:equals?|make|makes|please|=))*[\s?!.=]*$", re.IGNORECASE)
_UNITS = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip
_NUMERAL = re.compile(rf"\b(?:{'|'.join(_UNITS)})\b")
_WORDED = (
    (re.compile(r"(?<=\d)[,\u202f](?=\d{3}\b)"), ""),
    (re.compile(r"\bthe\b"), " "),
    (re.compile(r"([\d.]+)\s*(?:%|percent|per cent)\s+of\s+"), r"(\1/100)*"),
    (re.compile(r"\bhalf of\b"), "0.5*"),
    (re.compile(r"\b(?:multiplied by|times)\b|[×·]|(?<=[\d)\s])x(?=[\s\d(])"), "*"),
    (re.compile(r"\b(?:divided by|over)\b|÷"), "/"),
    (re.compile(r"\b(?:to the power of|raised to)\b|\^"), "**"),
    (re.compile(r"\bplus\b"), "+"),
    (re.compile(r"\bminus\b|[−–]"), "-"),
    (re.compile(r"\bmod(?:ulo)?\b"), "%"),
    (re.compile(r"\bsquared\b"), "**2"),
    (re.compile(r"\bcubed\b"), "**3"),
    (re.compile(r"(?<![\d.])0+(?=\d)"), ""),
)
_EXPRESSION = re.compile(r"[\d\s.+\-*/%()]+")
_HAS_OPERATION = re.compile(r"[\d)]\s*(?:[+*/%-])")
# "555-1234", "2024-05-01" and "24/7" typed alone are a number, a date and a saying.
_NO_SUM = re.compile(r"\d+(?:-\d+)+|\d+/\d+/\d+|24/7|9/11")


class OutOfBounds(ArithmeticError):
    """The sum is well formed and its result is larger than is worth showing."""


def work_out(sentence: str) -> str | None:
    """Return the answer to a sum asked in words or signs; None if the sentence asks for none."""
    sentence = sentence.strip()
    if not sentence or len(sentence) > _LONGEST:
        return None
    lead = _LEAD.match(sentence)
    asked = bool(lead and lead.group("ask")) or sentence.endswith("=")
    shown = _TAIL.sub("", sentence[lead.end() :] if lead else sentence).strip()
    expression = _in_signs(shown)
    if not _EXPRESSION.fullmatch(expression) or not _HAS_OPERATION.search(expression):
        return None
    if not asked and _NO_SUM.fullmatch(shown):
        return None
    return _answer(shown, expression)


def _in_signs(text: str) -> str:
    expression = _NUMERAL.sub(lambda match: str(_UNITS.index(match.group())), text.lower())
    for pattern, sign in _WORDED:
        expression = pattern.sub(sign, expression)
    return expression.strip()


def _answer(shown: str, expression: str) -> str | None:
    try:
        value = evaluate(expression)
    except ZeroDivisionError:
        return "That divides by zero, so it has no answer."
    except OutOfBounds:
        return "That one is too large for me to work out."
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    number, exact = _write_number(value)
    if re.search(r"[a-wyz]", shown, re.IGNORECASE):
        return f"{shown[:1].upper()}{shown[1:]} is {'' if exact else 'about '}{number}."
    return f"{shown} {'=' if exact else '≈'} {number}"


def evaluate(expression: str) -> Fraction:
    """Return the exact value of an expression in + - * / // % ** and brackets; raises rather than run away."""
    if len(expression) > 2 * _LONGEST:
        raise OutOfBounds
    return _value(ast.parse(expression, mode="eval").body)


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _check_bounds(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        return _check_bounds(_combine(node.op, _value(node.left), _value(node.right)))
    raise ValueError("not a sum")


def _combine(op: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return Fraction(left // right)
        case ast.Mod():
            return left % right
        case ast.Pow():
            return _power(left, right)
        case _:
            raise ValueError("not a sum")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError("roots are not worked out")
    width = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) > _HIGHEST_POWER or width * abs(exponent) > _WIDEST:
        raise OutOfBounds
    return base ** int(exponent)


def _check_bounds(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _WIDEST:
        raise OutOfBounds
    return value


def _write_number(value: Fraction) -> tuple[str, bool]:
    """Return the number as people write it, and whether that is all of it."""
    if value.denominator == 1:
        return str(value.numerator), True
    rounded = round(value, 6)
    whole, rest = divmod(abs(rounded.numerator) * 10**6 // rounded.denominator, 10**6)
    digits = f"{whole}.{rest:06d}".rstrip("0").rstrip(".")
    return f"{'-' if rounded < 0 else ''}{digits}", rounded == value
