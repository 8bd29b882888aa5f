"""The recorded past of a node, judged by another policy."""
