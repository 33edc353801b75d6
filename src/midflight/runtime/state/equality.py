"""When members compare their states, and who is told of a difference.

They do so whenever a world is entered (`agreement`), and every so many steps if the script asks for
it. What each came with is noted in its ledger, so that `midflight audit` can name who differed.
"""

import sys

from midflight.errors import StateError, UsageError
from midflight.runtime.data.ledger import Ledger
from midflight.runtime.group.process_group import Group
from midflight.runtime.state.agreement import Agreement, Standpoint, verify


class Equality:
    def __init__(self, verify_every: int | None) -> None:
        if verify_every is not None and verify_every < 1:
            raise UsageError(f"verify_every is {verify_every}: give a number of steps, 1 or more")
        self.every = verify_every
        self.same_plan = True  # False: the members of this world still have to compare it
        self._verified = 0  # the step before which the states were last compared

    def is_due(self, step: int, group: Group | None) -> bool:
        if self.every is None or group is None or group.size == 1:
            return False
        return step % self.every == 0 and step != self._verified

    def verify(self, group: Group, mine: Standpoint, ledger: Ledger) -> None:
        """In a world that is whole; raises StateError in a member that differs from most."""
        differed = verify(group, mine)
        claim = mine.claim(group.rank)
        if differed:
            ledger.note("verify", group.generation, claim, differed)
            raise StateError(
                f"{differed}; they were equal after {self._verified} steps: look for what only "
                "this member does in between, and resume from a checkpoint of before"
            )
        self._verified = claim.step

    def entered(self, group: Group, agreed: Agreement, step: int, ledger: Ledger) -> None:
        """All members of a world have the state of this step now."""
        self.same_plan, self._verified = agreed.same_plan, step
        if group.size == 1:
            return
        member, claim = group.world.names[group.rank], agreed.claim
        if agreed.received is None:
            ledger.note("enter", group.generation, claim)
            return
        differed, source = agreed.received.differed, agreed.received.source
        ledger.note("enter", group.generation, claim, differed, source)
        if differed:
            print(
                f"midflight: warning: after {claim.step} steps the state of {member} was not that "
                f"of {source}, and was replaced: {differed}",
                file=sys.stderr,
                flush=True,
            )
