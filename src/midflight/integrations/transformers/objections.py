"""What of TrainingArguments an elastic job cannot do, and what to do instead."""

from typing import Any

RESTART = (
    "leave it to the framework's own Trainer: `midflight run` restarts such a script at each "
    "change of size, and with save_steps and resume_from_checkpoint it goes on from its last "
    "checkpoint"
)
SAMPLING = ("random", "sequential")
OWN_STEPS = ("lomo", "adalomo")  # the weights change in the backward pass


def objection(args: Any) -> str | None:
    """Why training with these arguments cannot be resized in place; None if it can."""
    optimizer = str(getattr(args.optim, "value", args.optim))
    objections = (
        (bool(args.deepspeed), f"deepspeed= splits the state over fixed processes: {RESTART}"),
        (bool(args.fsdp), f"fsdp= splits the model over fixed processes: {RESTART}"),
        (
            args.parallelism_config is not None,
            f"parallelism_config= has a fixed number of processes: {RESTART}",
        ),
        (
            args.world_size > 1,
            "Accelerate has begun a process group of its own: import "
            "midflight.integrations.transformers before TrainingArguments are made",
        ),
        (args.n_gpu > 1, "this process sees several GPUs: set CUDA_VISIBLE_DEVICES to one of them"),
        (args.fp16, "fp16=True leaves out steps, which members would have to agree on: use bf16"),
        (args.torch_compile, "torch_compile=True wraps the model: leave it out"),
        (
            args.auto_find_batch_size,
            "auto_find_batch_size=True changes the global batch: set "
            "per_device_train_batch_size to what a device holds, and the global batch by "
            "gradient_accumulation_steps",
        ),
        (
            args.train_sampling_strategy not in SAMPLING,
            f"train_sampling_strategy={args.train_sampling_strategy!r} has an order of its own: "
            f"use one of {', '.join(SAMPLING)}",
        ),
        (
            optimizer in OWN_STEPS,
            f"optim={optimizer!r} changes weights before gradients are averaged: use another",
        ),
    )
    return next((reason for applies, reason in objections if applies), None)
