"""The exchange with other tools: tasks of a bank as their files, and their files as tasks.

The files are checkpoints of transformers, adapters of PEFT, and plain safetensors. Other programs
train by `trainer_callback`, `skill`, or on Avalanche, whose banks `record_stream` describes.
"""

from cl_graft.integrations.task_export import FORMATS, Exported, export_task
from cl_graft.integrations.task_import import Imported, import_task

__all__ = ["FORMATS", "Exported", "Imported", "export_task", "import_task"]
