"""The private parts of Hugging Face's Trainer: each is named here, with the reason.

The Trainer's loop counts epochs and steps in local variables, but a newcomer begins in the middle,
and a member that was a step behind goes on where the others are. So the loop is ours
(`trainer.Elastic`), and all that a loop of theirs calls is called by ours. `check` raises an error
that names what is missing or different before anything is trained.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import transformers

from midflight.errors import UsageError

TESTED = "5.23"


@dataclass(frozen=True)
class Interface:
    name: str  # of a method of the Trainer
    why: str
    takes: tuple[str, ...] = ()  # its parameters
    uses: tuple[str, ...] = ()  # attributes that it reads or sets, which the loop keeps


INTERFACES = (
    Interface(
        "_inner_training_loop",
        "what `train` calls: it is replaced",
        ("batch_size", "args", "resume_from_checkpoint", "trial", "ignore_keys_for_eval"),
    ),
    Interface(
        "_init_training_state",
        "a new TrainerState, or a checkpoint's",
        (
            *("max_steps", "num_update_steps_per_epoch", "num_train_epochs"),
            *("resume_from_checkpoint", "trial"),
        ),
    ),
    Interface(
        "_prepare_for_training",
        "makes the optimizer and the scheduler, and loads a checkpoint's",
        ("max_steps", "train_dataloader", "resume_from_checkpoint"),
    ),
    Interface("_load_rng_state", "goes on with a checkpoint's random numbers", ("checkpoint",)),
    Interface(
        "_remove_unused_columns", "columns that the model does not take", ("dataset", "description")
    ),
    Interface(
        "_get_collator_with_removed_columns",
        "the same for other datasets",
        ("data_collator", "description"),
    ),
    Interface(
        "_get_num_items_in_batch",
        "how many labels a loss is the mean over",
        ("batch_samples", "device"),
    ),
    Interface(
        "training_step",
        "what it divides a loss by",
        ("model", "inputs", "num_items_in_batch"),
        ("current_gradient_accumulation_steps", "loss_is_scaled_for_ga"),
    ),
    Interface("_track_num_input_tokens", "counts tokens, if asked to", ("inputs",)),
    Interface("_clip_grad_norm", "clips", ("model",)),
    Interface("_get_grad_norm", "the norm that is logged", ("model", "grad_norm")),
    Interface("_get_learning_rate", "the rate that is logged"),
    Interface(
        "_maybe_log_save_evaluate",
        "logs, evaluates and saves after a step",
        (
            *("tr_loss", "grad_norm", "model", "trial", "epoch", "ignore_keys_for_eval"),
            *("start_time", "learning_rate"),
        ),
        ("_globalstep_last_logged", "_total_loss_scalar"),
    ),
    Interface("_evaluate", "for `eval_on_start`", ("trial", "ignore_keys_for_eval")),
    Interface("_save_checkpoint", "rank 0 writes", ("model", "trial")),
    Interface("_get_output_dir", "where checkpoints are", ("trial",)),
    Interface(
        "_finalize_training",
        "the end: metrics, and the best model",
        ("trial", "num_train_samples", "start_time"),
        ("_tr_loss", "_total_loss_scalar", "_initial_global_step"),
    ),
    Interface(
        "log",
        "counts tokens from the start of training",
        ("logs", "start_time"),
        ("_initial_num_input_tokens_seen",),
    ),
)


def check(trainer: type[Any], interfaces: Sequence[Interface] = INTERFACES) -> None:
    """Raise UsageError if this Trainer is not the one that our loop was written for."""
    wrong = [f"{item.name} ({item.why})" for item in interfaces if not _fits(trainer, item)]
    if wrong:
        raise UsageError(
            f"transformers {transformers.__version__} has another Trainer than the one that "
            f"Midflight takes part in, {TESTED}; missing or different: {'; '.join(wrong)}. "
            f"Install transformers=={TESTED}.*, or a newer Midflight"
        )


def _fits(trainer: type[Any], item: Interface) -> bool:
    method = getattr(trainer, item.name, None)
    if method is None:
        return False
    given = set(inspect.signature(method).parameters)
    return given.issuperset(item.takes) and set(method.__code__.co_names).issuperset(item.uses)
