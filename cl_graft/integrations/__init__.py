"""Exchange with other tools: a task of a bank as files that they read, and their files as grafts.

What is exchanged are files: checkpoints of transformers, adapters of PEFT, plain safetensors.
"""

from cl_graft.integrations.task_export import FORMATS, Exported, export_task
from cl_graft.integrations.task_import import Imported, import_task

__all__ = ["FORMATS", "Exported", "Imported", "export_task", "import_task"]
