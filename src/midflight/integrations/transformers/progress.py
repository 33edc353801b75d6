"""What a Trainer knows of its progress besides weights: what a newcomer has to know, too.

It is the same on all members but for who is the first of them, which the loop says at each step.
"""

from dataclasses import asdict
from typing import Any, TypeAlias

from transformers.trainer_callback import ExportableState

# Whose entries differ from member to member, or are made anew from the callbacks at each save.
OWN = ("is_local_process_zero", "is_world_process_zero", "stateful_callbacks")
SPEED = ("_runtime", "_per_second")
State: TypeAlias = dict[str, Any]


class Progress:
    """For `mf.join`: the state of a Trainer, its control and its callbacks."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> State:
        trainer = self._trainer
        known = asdict(trainer.state)
        return {
            "state": {name: value for name, value in known.items() if name not in OWN},
            "control": asdict(trainer.control),
            "callbacks": [callback.state()["attributes"] for callback in self._callbacks()],
            "loss": trainer._tr_loss.item(),
            "total_loss": trainer._total_loss_scalar,
            "last_logged": trainer._globalstep_last_logged,
            "evaluated_first": trainer.evaluated_first,
        }

    def load_state_dict(self, saved: State) -> None:
        trainer = self._trainer
        _assign(trainer.state, saved["state"])
        _assign(trainer.control, saved["control"])
        for callback, attributes in zip(self._callbacks(), saved["callbacks"], strict=True):
            _assign(callback, attributes)
        trainer._tr_loss.fill_(saved["loss"])
        trainer._total_loss_scalar = saved["total_loss"]
        trainer._globalstep_last_logged = saved["last_logged"]
        trainer.evaluated_first = saved["evaluated_first"]

    def forget_speed(self) -> None:
        """Of what was logged last: how fast it was, which is another figure on each member."""
        last = self._trainer.state.log_history[-1]
        for name in [name for name in last if name.endswith(SPEED)]:
            del last[name]

    def _callbacks(self) -> list[Any]:
        every = self._trainer.callback_handler.callbacks
        return [callback for callback in every if isinstance(callback, ExportableState)]


def _assign(target: Any, values: State) -> None:
    for name, value in values.items():
        setattr(target, name, value)
