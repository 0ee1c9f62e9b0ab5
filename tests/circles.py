#!/usr/bin/env python3
"""Fails if folders of a room, or files beside these folders, include each other in a circle.

usage: circles.py REPOSITORY

At each level of src, every subfolder and every file is a node. x.h and x.cc are separate nodes."""
import pathlib
import re
import sys


def included(file, root):
    """Returns the files of the repository that the file includes."""
    for name in re.findall(r'^#include "([^"]+)"', file.read_text(), re.M):
        for candidate in (file.parent / name, root / "src" / name):
            if candidate.exists():
                yield candidate.resolve()


def circles(edges):
    """Returns the sets of nodes that reach each other."""
    def reached(start):
        found, todo = set(), [start]
        while todo:
            for node in edges.get(todo.pop(), ()):
                if node not in found:
                    found.add(node)
                    todo.append(node)
        return found
    reach = {node: reached(node) for node in edges}
    return {frozenset(other for other in reach[node] if node in reach.get(other, ())) for node in edges if node in reach[node]}


root = pathlib.Path(sys.argv[1]).resolve()
levels = {}  # folder -> node -> included nodes
for source in (root / "src").rglob("*.[hc]*"):
    for target in included(source, root):
        common = next(folder for folder in source.parents if folder in target.parents)
        a, b = (common / file.relative_to(common).parts[0] for file in (source, target))
        if a != b:
            levels.setdefault(common, {}).setdefault(a, set()).add(b)
found = [f"{level.relative_to(root)}: {', '.join(sorted(node.name for node in circle))} include each other in a circle"
         for level, edges in levels.items() for circle in circles(edges)]
sys.exit("\n".join(sorted(found)) or 0)
