"""Graft banks and single grafts on disk: safetensors and JSON, nothing executable.

What is damaged, foreign, newer than this package, or made for another model is refused, each with
its own error of `cl_graft.errors`.
"""

from cl_graft.storage.bank_folder import append_entry, load_bank, save_bank
from cl_graft.storage.disk_errors import explain_write_errors
from cl_graft.storage.graft_file import StoredGraft, load_graft, save_graft
from cl_graft.storage.locks import LOCK, OWNER, only_writer, release_dead

__all__ = [
    "LOCK",
    "OWNER",
    "StoredGraft",
    "append_entry",
    "explain_write_errors",
    "load_bank",
    "load_graft",
    "only_writer",
    "release_dead",
    "save_bank",
    "save_graft",
]
