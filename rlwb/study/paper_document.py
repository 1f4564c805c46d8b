"""A document as blocks, written as Markdown and as LaTeX, whose numbers stand for cells of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.study.paper_check import as_markdown, as_tex, escaped, lookup, rendered, shown

if TYPE_CHECKING:
    from rlwb.study.paper_check import Segment


@dataclass(frozen=True)
class Cite:
    """References to works, by their keys."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """Words to type, or the name of a file."""

    text: str


#: What a line of text is made of: words, the number of a figure, references, code.
Piece = str | int | Cite | Code
Line = Sequence[Piece]


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph."""

    line: Line


@dataclass(frozen=True)
class Items:
    """A list."""

    lines: Sequence[Line]


@dataclass(frozen=True)
class Grid:
    """A table; its first column is set to the left, the others as `left` says."""

    label: str
    caption: Line
    header: Sequence[Line]
    rows: Sequence[Sequence[Line]]
    left: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure in the folder ``figures``, by the stem of its files."""

    stem: str
    caption: str


@dataclass(frozen=True)
class Commands:
    """Commands, one a line."""

    lines: Sequence[Line]


Block = Heading | Paragraph | Items | Grid | Picture | Commands


@dataclass
class Figures:
    """The numbers and texts of a folder's documents, each a cell of a file in the folder.

    Attributes
    ----------
    folder
        The paper's folder, in which the files lie already.
    found
        One mapping a figure: `file`, `row` (the cells that tell the row of a table), `field`, `value`, `format`,
        `scale`, `text`, and `code` where it is printed as it is.
    """

    folder: Path
    found: list[dict[str, Any]] = field(default_factory=list)

    def cell(self, file: str, row: Mapping[str, Any], column: str, form: str | None = None, scale: float = 1.0) -> int:
        """Return the number of a figure: a cell of a CSV table."""
        return self._add(
            {"file": file, "row": {key: str(one) for key, one in row.items()}, "field": column}, form, scale
        )

    def leaf(
        self, file: str, *place: str | int, form: str | None = None, scale: float = 1.0, is_code: bool = False
    ) -> int:
        """Return the number of a figure: a value of a JSON file."""
        return self._add({"file": file, "field": list(place)}, form, scale, is_code=is_code)

    def _add(self, where: dict[str, Any], form: str | None, scale: float, *, is_code: bool = False) -> int:
        value = lookup(self.folder, where)
        made = {**where, "value": value, "format": form, "scale": scale, "code": is_code}
        self.found.append({**made, "text": shown(value, form, scale)})
        return len(self.found) - 1


@dataclass(frozen=True)
class Works:
    """A BibTeX file: key to the text and the fields of each entry."""

    entries: Mapping[str, str]
    fields: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, path: Path) -> Works:
        """Read a file with a field a line."""
        texts = path.read_text(encoding="utf-8").strip().split("\n\n")
        entries = {text.partition("{")[2].partition(",")[0]: text for text in texts}
        fields = {key: dict(re.findall(r"^  (\w+) = \{(.*)\},$", text, re.M)) for key, text in entries.items()}
        return cls(entries, fields)

    def short(self, key: str) -> str:
        """Return authors and year as a text refers to a work."""
        names = [_plain(one).partition(",")[0] for one in self.fields[key]["author"].split(" and ")]
        who = names[0] if len(names) == 1 else " and ".join(names) if len(names) == 2 else f"{names[0]} et al."
        return f"{who} {self.fields[key]['year']}"

    def long(self, key: str) -> str:
        """Return an entry of a list of references."""
        one = self.fields[key]
        where = _plain(one.get("journal", one.get("booktitle", "")))
        if "volume" in one:
            where += f" {one['volume']}" + (f"({one['number']})" if "number" in one else "")
        pages = f", {one['pages'].replace('--', '–')}" if "pages" in one else ""
        arxiv = f"{' ' if where == 'arXiv' else ', arXiv '}{one['eprint']}" if "eprint" in one else ""
        who = "; ".join(_plain(name) for name in one["author"].split(" and "))
        return f"{who} ({one['year']}). {_plain(one['title'])}. {where}{pages}{arxiv}."


def _plain(text: str) -> str:
    """Return a BibTeX field without braces and accents in TeX's spelling."""
    for tex, letter in ((r"\'o", "ó"), (r"\'e", "é"), (r"\"e", "ë"), (r"\&", "&")):
        text = text.replace(tex, letter)
    return re.sub(r"[{}]", "", text)


def cited(blocks: Iterable[Block]) -> list[str]:
    """Return the keys of the works that a document refers to, in alphabetical order."""
    return sorted({key for line in _all_lines(blocks) for one in line if isinstance(one, Cite) for key in one.keys})


def _all_lines(blocks: Iterable[Block]) -> Iterator[Line]:
    for one in blocks:
        if isinstance(one, Paragraph):
            yield one.line
        elif isinstance(one, Items | Commands):
            yield from one.lines
        elif isinstance(one, Grid):
            yield one.caption
            yield from (line for row in one.rows for line in row)


def joined(segments: Iterable[Segment]) -> list[Segment]:
    """Return segments with neighbouring literal texts as one."""
    found: list[Segment] = []
    for one in segments:
        if isinstance(one, str) and found and isinstance(found[-1], str):
            found[-1] += one
        elif one != "":
            found.append(one)
    return found


def markdown(title: Line, blocks: Sequence[Block], works: Works) -> list[Segment]:
    """Return a document as Markdown."""
    parts: list[Segment] = ["# ", *_md(title, works), "\n"]
    for one in blocks:
        parts += ["\n", *markdown_block(one, works)]
    parts += ["\n## References\n\n", *(f"- {as_markdown(works.long(key))}\n" for key in cited(blocks))]
    return joined(parts)


def markdown_block(block: Block, works: Works) -> Iterator[Segment]:
    """Yield a block as Markdown."""
    if isinstance(block, Heading):
        yield f"## {as_markdown(block.text)}\n"
    elif isinstance(block, Paragraph):
        yield from (*_md(block.line, works), "\n")
    elif isinstance(block, Items):
        for line in block.lines:
            yield from ("- ", *_md(line, works), "\n")
    elif isinstance(block, Picture):
        yield f"![{block.stem}](figures/{block.stem}.svg)\n\n{as_markdown(block.caption)}\n"
    elif isinstance(block, Commands):
        for line in block.lines:
            yield from (
                "    ",
                *(one.text if isinstance(one, Code) else one for one in line if not isinstance(one, Cite)),
                "\n",
            )
    else:
        yield from (*_md(block.caption, works), "\n\n")
        yield from _md_row(block.header, works)
        yield f"|{'|'.join(['---', *(['---' if block.left else '--:'] * (len(block.header) - 1))])}|\n"
        for row in block.rows:
            yield from _md_row(row, works)


def _md_row(row: Sequence[Line], works: Works) -> Iterator[Segment]:
    yield "|"
    for line in row:
        yield from (" ", *_md(line, works), " |")
    yield "\n"


def _md(line: Line, works: Works) -> Iterator[Segment]:
    for one in line:
        if isinstance(one, Cite):
            yield f" ({as_markdown('; '.join(map(works.short, one.keys)))})"
        elif isinstance(one, Code):
            yield f"`{one.text}`"
        else:
            yield _with_ends(one, as_markdown) if isinstance(one, str) else one


def _with_ends(text: str, write: Callable[[str], str]) -> str:
    """Return words written in another form, with the spaces at their ends."""
    inner = text.strip(" ")
    if not inner:
        return text
    start = len(text) - len(text.lstrip(" "))
    return f"{text[:start]}{write(inner)}{text[start + len(inner) :]}"


_PREAMBLE = r"""\documentclass[11pt,a4paper]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage{booktabs,longtable,graphicx}
\usepackage[margin=2.2cm]{geometry}
% Names in other letters than Latin ones need XeLaTeX or LuaLaTeX, without the three lines on encodings above.
"""


def latex(title: Line, blocks: Sequence[Block], files: Mapping[str, str]) -> list[Segment]:
    """Return a document as LaTeX; a table whose label is in `files` is read from that file."""
    parts: list[Segment] = [
        _PREAMBLE,
        r"\title{",
        *_tex(title),
        "}\n\\author{}\n\\date{}\n\\begin{document}\n\\maketitle\n",
    ]
    for one in blocks:
        own = files.get(one.label) if isinstance(one, Grid) else None
        parts += ["\n", *([f"\\input{{{own.removesuffix('.tex')}}}\n"] if own else latex_block(one))]
    parts.append("\n\\bibliographystyle{plain}\n\\bibliography{references}\n\\end{document}\n")
    return joined(parts)


def latex_block(block: Block) -> Iterator[Segment]:
    """Yield a block as LaTeX."""
    if isinstance(block, Heading):
        yield f"\\section{{{as_tex(block.text)}}}\n"
    elif isinstance(block, Paragraph):
        yield from (*_tex(block.line), "\n")
    elif isinstance(block, Items):
        yield "\\begin{itemize}\n"
        for line in block.lines:
            yield from ("\\item{} ", *_tex(line), "\n")
        yield "\\end{itemize}\n"
    elif isinstance(block, Picture):
        yield "\\begin{figure}[htbp]\n\\centering\n"
        yield f"\\includegraphics[width=0.8\\textwidth]{{figures/{block.stem}.pdf}}\n"
        yield f"\\caption{{{as_tex(block.caption)}}}\n\\label{{fig:{block.stem}}}\n\\end{{figure}}\n"
    elif isinstance(block, Commands):
        yield "\\begin{flushleft}\\ttfamily\\small\n"
        for line in block.lines:
            yield from (*_tex([one.text if isinstance(one, Code) else one for one in line]), "\\par\n")
        yield "\\end{flushleft}\n"
    elif block.left:
        yield from _long_table(block)
    else:
        yield "\\begin{table}[htbp]\n\\centering\n\\caption{"
        yield from (*_tex(block.caption), f"}}\n\\label{{tab:{block.label}}}\n\\resizebox{{\\textwidth}}{{!}}{{%\n")
        yield f"\\begin{{tabular}}{{l{'r' * (len(block.header) - 1)}}}\n\\toprule\n"
        yield from (*_tex_row(block.header), "\\midrule\n")
        yield from _tex_rows(block)
        yield "\\bottomrule\n\\end{tabular}}\n\\end{table}\n"


def _long_table(block: Grid) -> Iterator[Segment]:
    """Yield a table of words, which may go over pages."""
    width = f"p{{{0.9 / len(block.header):.2f}\\textwidth}}"
    yield f"{{\\small\n\\begin{{longtable}}{{{width * len(block.header)}}}\n\\caption{{"
    yield from (*_tex(block.caption), f"}}\\label{{tab:{block.label}}}\\\\\n\\toprule\n")
    yield from (*_tex_row(block.header), "\\midrule\n\\endhead\n")
    yield from _tex_rows(block)
    yield "\\bottomrule\n\\end{longtable}}\n"


def _tex_rows(block: Grid) -> Iterator[Segment]:
    for row in block.rows:
        yield from _tex_row(row)


def _tex_row(row: Sequence[Line]) -> Iterator[Segment]:
    """Yield a row; braces keep a bracket that it begins with from being an option of the line before."""
    yield "{}"
    for at, line in enumerate(row):
        yield from ((" & " if at else ""), *_tex(line))
    yield " \\\\\n"


def _tex(line: Line) -> Iterator[Segment]:
    for one in line:
        if isinstance(one, Cite):
            yield f"~\\cite{{{','.join(one.keys)}}}"
        elif isinstance(one, Code):
            yield f"\\texttt{{{as_tex(one.text)}}}"
        else:
            yield _with_ends(one, as_tex) if isinstance(one, str) else one


def written(segments: Sequence[Segment], figures: Figures, kind: str) -> str:
    """Return the text of a document; `kind` is the suffix of its file."""
    return rendered(segments, [escaped(one, str(one["text"]), kind) for one in figures.found])
