"""Elements of HTML and SVG, escaped by construction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape


def element(name: str, *children: str, **attributes: str | float) -> Markup:
    """One element. Texts and values are escaped unless they are `Markup`; `class_` is `class`, `data_label` is
    `data-label`."""
    written = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{escape(plain(value))}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{joined(children)}</{name}>")  # noqa: S704  # every part is escaped


def joined(parts: Iterable[str]) -> Markup:
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))  # noqa: S704  # as above


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """The numbers of a chart. The first of each row is its head. Narrow pages lay rows out as blocks, which is why
    roles are named and cells carry their column's name."""
    return element(
        "table",
        element("caption", caption, class_="unseen"),
        element(
            "thead",
            element("tr", *(element("th", name, role="columnheader", scope="col") for name in columns), role="row"),
            role="rowgroup",
        ),
        element(
            "tbody",
            *(
                element(
                    "tr",
                    element("th", head, role="rowheader", scope="row"),
                    *(
                        element("td", cell, role="cell", data_label=column)
                        for column, cell in zip(columns[1:], cells, strict=True)
                    ),
                    role="row",
                )
                for head, *cells in rows
            ),
            role="rowgroup",
        ),
        class_="figures",
        role="table",
    )


def plain(value: str | float) -> str:
    """A coordinate with one decimal at most; text as it is."""
    return value if isinstance(value, str) else f"{round(value, 1) + 0.0:g}"
