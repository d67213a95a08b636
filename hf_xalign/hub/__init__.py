"""Push models to the Hugging Face Hub. [`hf_xalign.load`] loads them.

    from hf_xalign import hub, load

    hub.push("runs/german", "me/german")
    model = load("me/german")

A push is a single commit: it succeeds or leaves the repository unchanged. Large files that were uploaded before a push
failed are not uploaded again.
"""

from hf_xalign.hub.upload import push

__all__ = ["push"]
