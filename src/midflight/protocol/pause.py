"""What a change of the world costs a member that was there before and after, in seconds."""

from midflight.protocol.message import message


@message
class Pause:
    detect: float  # from its last step (if planned, from the boundary) until it knew
    agree: float  # until it was told of the next world
    connect: float  # until the group was there
    state: float  # until all members held the same state
    first_step: float  # until the next step was complete
    usual: float  # a step before the change

    @property
    def phases(self) -> dict[str, float]:
        """Without the usual step: that one would have been done anyway."""
        first = max(0.0, self.first_step - self.usual)
        detect = max(0.0, self.detect - max(0.0, self.usual - self.first_step))
        return {
            "detect": detect,
            "agree": self.agree,
            "connect": self.connect,
            "state": self.state,
            "first step": first,
        }

    @property
    def seconds(self) -> float:
        """How much longer than a usual step it took from step to step."""
        return sum(self.phases.values())
