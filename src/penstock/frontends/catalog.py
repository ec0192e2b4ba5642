"""The namespaces `ps.sources`, `ps.formats`, `ps.steps` and `ps.sinks`.

`catalog.pyi` tells type checkers what is in them.
"""

from penstock.frontends.namespace import Namespace

sources = Namespace("source")
formats = Namespace("format")
steps = Namespace("step")
sinks = Namespace("sink")
