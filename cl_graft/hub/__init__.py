"""Banks on the Hugging Face hub: files of the store, a model card, and nothing else.

`GraftBank.save_pretrained`, `from_pretrained` and `push_to_hub` are the same functions.
"""

from cl_graft.hub.repository import (
    Pushed,
    download_bank,
    from_pretrained,
    push_to_hub,
    save_pretrained,
)

__all__ = ["Pushed", "download_bank", "from_pretrained", "push_to_hub", "save_pretrained"]
