"""The Hub: push what the library writes, load it from there.

    from hf_xalign import hub

    hub.push("runs/german", "me/german")
    model = hub.load("me/german")

A push is one commit: the repository holds all of it afterwards, or stays as it was. Large files that arrived before a
push failed are not sent again by the next push.
"""

from hf_xalign.hub.upload import push
from hf_xalign.modeling.loading import load

__all__ = ["load", "push"]
