"""Hugging Face's Trainer, elastic: `from midflight.integrations.transformers import Trainer`.

Import it before TrainingArguments are made: those ask Accelerate how many processes there are, and
it is to find one.
"""

from midflight.integrations.transformers.trainer import Elastic, Trainer

__all__ = ["Elastic", "Trainer"]
