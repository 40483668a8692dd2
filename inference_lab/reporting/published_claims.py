"""What was published, and whether it holds, as a table of a report beside its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inference_lab.reporting.answers import filled
from inference_lab.reporting.document import Document, Section, Table, column

__all__ = ["Claim", "with_claims"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of a publication, and what the records of a study say to it.

    Parameters
    ----------
    paper : str
        Authors and year.
    claim : str
        What it says, in our words.
    verdict : {"holds", "holds under conditions", "does not hold", "cannot be told"}
    evidence : str
        Why, a Jinja text over the tables of the report; see `inference_lab.reporting.answers`.
    """

    paper: str
    claim: str
    verdict: Literal["holds", "holds under conditions", "does not hold", "cannot be told"]
    evidence: str


def with_claims(document: Document, claims: Sequence[Claim]) -> Document:
    """Return a report with claims beside its evidence, after its first section.

    What evidence says and the tables do not becomes a warning.
    """
    if not claims:
        return document
    shown = [filled(claim.evidence, document.tables()) for claim in claims]
    columns = (
        column("paper", [claim.paper for claim in claims]),
        column("says", [claim.claim for claim in claims]),
        column("here", [claim.verdict for claim in claims]),
        column("evidence", [text for text, _ in shown]),
    )
    table = Table("claims", "What was published, and what the records say to it.", columns)
    first, *rest = document.sections
    wrong = [
        f"Evidence of {claim.claim!r} and records differ: {said}."
        for claim, (_, missing) in zip(claims, shown, strict=True)
        for said in missing
    ]
    return replace(
        document,
        sections=(first, Section("Published claims", (table,)), *rest),
        warnings=(*document.warnings, *wrong),
    )
