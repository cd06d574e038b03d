"""What rows of a kind of tasks hold, and how they are made from the records of a data set."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row


class RowFormat:
    """The way from records to rows: their columns, and what these hold.

    Attributes:
        columns: Columns that a data set of this kind has, each with its usual names; the first
            name is that in messages. Empty where `cl_graft.data.columns` reads it.
        target_column: Name in `columns` of the right answers: dev and test rows are left out where
            no row of their file has one. Empty where there is no such column.
        optional: Columns that it may have, likewise.
        other_columns: Columns that a data set of this kind has instead, one mapping each.
    """

    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    target_column: ClassVar[str] = ""
    optional: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    other_columns: ClassVar[tuple[Mapping[str, tuple[str, ...]], ...]] = ()

    def find_columns(self, names: Collection[str], *, labelled: bool = True) -> list[str]:
        """Return the usual names of the kind's columns, where data with such names are of it.

        Args:
            names: Names of the data's columns.
            labelled: Whether the column with what is to be learned is among them.
        """
        return [
            name
            for columns in (self.columns, *self.other_columns)
            if all(
                any(one in names for one in usual)
                or (column == self.target_column and not labelled)
                for column, usual in columns.items()
            )
            for usual in columns.values()
            for name in usual
        ]

    def read(self, values: Mapping[str, object], place: str) -> object:
        """Return what a record holds, before label names are known.

        Args:
            values: Values by column, under the first of a column's usual names; optional columns
                that the data lack are left out.
            place: File and line, for messages.

        Raises:
            InputError: If something is wrong with it; a `ColumnError` is shown with the name that
                the column has in the data.
        """
        raise NotImplementedError

    def make_rows(
        self, drafts: Mapping[str, Sequence[tuple[Any, str]]], declared: Mapping[str, Sequence[str]]
    ) -> tuple[dict[str, list[Row | InputError]], dict[str, Any]]:
        """Make rows of what was read, when all splits are known.

        Args:
            drafts: What `read` returned, with its place, by split; ``"train"`` is among them.
            declared: Names that the data declare, such as ``"label_names"``, ``"span_types"``.

        Returns:
            The rows by split, an error where one cannot be used; and fields of the `TextTask`, such
            as `label_names`.
        """
        raise NotImplementedError
