"""Push models to the Hugging Face Hub and load them.

    from hf_xalign import hub

    hub.push("runs/german", "me/german")
    model = hub.load("me/german")

A push is a single commit: it succeeds or leaves the repository unchanged. Large files that were uploaded before a push
failed are not uploaded again.
"""

from hf_xalign.hub.upload import push
from hf_xalign.modeling.loading import load

__all__ = ["load", "push"]
