"""What a change of the world costs a member that was there before and after, in seconds."""

from midflight.protocol.message import message

LONGEST = 1e9  # seconds


@message
class Pause:
    detect: float  # from its last step (if planned, from the boundary) until it knew
    agree: float  # until it was told of the next world
    connect: float  # until the group was there
    state: float  # until all members held the same state
    first_step: float  # until the next step was complete
    usual: float  # a step before the change

    @property
    def _bounded(self) -> tuple[float, ...]:
        """As the fields are; whatever a member says, no phase is negative or longer than years."""
        said = (self.detect, self.agree, self.connect, self.state, self.first_step, self.usual)
        return tuple(min(max(0.0, value), LONGEST) for value in said)

    @property
    def phases(self) -> dict[str, float]:
        """Without the usual step: that one would have been done anyway."""
        detect, agree, connect, state, first_step, usual = self._bounded
        return {
            "detect": max(0.0, detect - max(0.0, usual - first_step)),
            "agree": agree,
            "connect": connect,
            "state": state,
            "first step": max(0.0, first_step - usual),
        }

    @property
    def seconds(self) -> float:
        """How much longer than a usual step it took from step to step."""
        return sum(self.phases.values())
