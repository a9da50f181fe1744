"""What one writer did to its files, and what of it was acknowledged: judges trees that are found after faults.

A tree is {path: content}. Two judges:
  local     after a kill the mount shows a state that the writer once had (a prefix of its changes), not older than what was acknowledged last
  bucket    at any instant, whatever the mount's process and its cache do: a file that was acknowledged is whole under a name that it had then
            or later, with the content of then or of later; nothing else is there; what was removed and acknowledged is gone
An acknowledgement is an fsync that returned: of a file for its content and name, of a directory for everything.
"""


class Change:
    """A content that comes about piece by piece: `new` over `old` from `at` on."""

    def __init__(self, old, new, at):
        self.old, self.new, self.at = old, new, at

    def whole(self):
        return self.old[: self.at] + self.new + self.old[self.at + len(self.new) :]

    def may_be(self, found):
        at, rest = self.at, found[self.at :]
        if found[:at] != self.old[:at]:
            return False
        low, high = 0, min(len(rest), len(self.new))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if rest[:middle] == self.new[:middle] else (low, middle - 1)
        return rest[low:] == self.old[at + low :]


class File:
    def __init__(self, path):
        # Since the last acknowledgement.
        self.paths, self.contents, self.changes = {path}, [], []
        self.is_acknowledged, self.may_be_gone = False, True
        # What may be left under older names: (paths, contents, changes).
        self.older = []

    def may_have(self, found):
        return found in self.contents or any(change.may_be(found) for change in self.changes)

    def may_be_at(self, path, found):
        if path in self.paths and self.may_have(found):
            return True
        return any(path in paths and (found in contents or any(change.may_be(found) for change in changes)) for paths, contents, changes in self.older)

    def acknowledge(self, path, content, is_all):
        self.older = [] if is_all else [*self.older, (self.paths, self.contents, self.changes)]
        self.paths, self.contents, self.changes = {path}, [content], []
        self.is_acknowledged, self.may_be_gone = True, False


class Manifest:
    def __init__(self):
        self.files, self.tree = [], {}
        # States since the last acknowledgement, {path: (file, content)}, and the changes between them: (path, Change) or None.
        self.states, self.between = [{}], [None]
        self.acknowledged = 0

    def begin_write(self, path, change):
        """A new file, or a change of one that is there."""
        file = self.tree[path][0] if path in self.tree else File(path)
        if path not in self.tree:
            self.files.append(file)
        file.changes.append(change)
        self.between[-1] = (path, file, change)

        def done():
            content = change.whole()
            file.contents.append(content)
            self.advance(self.tree | {path: (file, content)})

        return done

    def begin_rename(self, old, new):
        """Of a file, over another one perhaps, or of a directory (paths end in '/')."""
        tree = {}
        for path, (file, content) in self.tree.items():
            if path == new:
                file.may_be_gone = True
            elif path == old or old.endswith("/") and path.startswith(old):
                moved = new + path[len(old) :]
                file.paths.add(moved)
                tree[moved] = (file, content)
            else:
                tree[path] = (file, content)
        return lambda: self.advance(tree)

    def begin_remove(self, path):
        self.tree[path][0].may_be_gone = True
        tree = {name: entry for name, entry in self.tree.items() if name != path}
        return lambda: self.advance(tree)

    def advance(self, tree):
        self.tree = tree
        self.states.append(tree)
        self.between.append(None)

    def acknowledge(self, path=None):
        """One file, or all."""
        if path:
            self.tree[path][0].acknowledge(path, self.tree[path][1], False)
        else:
            for name, (file, content) in self.tree.items():
                file.acknowledge(name, content, True)
            self.files = [file for file, _ in self.tree.values()]
        self.acknowledged += 1
        self.states, self.between = [self.tree], [None]

    def adopt(self, found):
        """The tree after a kill; returns what is wrong, and goes on from what is there."""
        for at in range(len(self.states) - 1, -1, -1):
            state, began = self.states[at], self.between[at]
            if {name: content for name, (_, content) in state.items()} == found:
                return self.go_on(state)
            if began and (changed := self.in_between(state, began, found)):
                return self.go_on(changed)
        expected = {name: content for name, (_, content) in self.states[0].items()}
        wrong = [f"{name} is {'there' if name in found else 'missing' if name in expected else 'new'}" for name in expected.keys() ^ found.keys()]
        wrong += [f"{name} differs ({len(found[name])} of {len(expected[name])} bytes)" for name in expected.keys() & found.keys() if expected[name] != found[name]]
        return ["no state since the last fsync is like this; beside that of the fsync: " + "; ".join(sorted(wrong)[:8])]

    def in_between(self, state, began, found):
        path, file, change = began
        others = {name: content for name, (_, content) in state.items() if name != path}
        if path in found and change.may_be(found[path]) and others == {name: content for name, content in found.items() if name != path}:
            file.contents.append(found[path])
            return state | {path: (file, found[path])}
        return None

    def go_on(self, state):
        # What was done after it did not happen, but the bucket may have some of it for a while.
        self.tree = state
        self.states, self.between = [state], [None]
        return []

    def judge(self, bucket, is_at_rest=False):
        """What is wrong with what the bucket has; at rest it is what the writer has, to the byte."""
        if is_at_rest:
            expected = {name: content for name, (_, content) in self.tree.items()}
            missing = [f"LOST {name}" for name in expected.keys() - bucket.keys()]
            more = [f"MORE {name}" for name in bucket.keys() - expected.keys()]
            return missing + more + [f"TORN {name}" for name in expected.keys() & bucket.keys() if expected[name] != bucket[name]]
        wrong = []
        for file in self.files:
            if file.is_acknowledged and not file.may_be_gone and not any(path in bucket and file.may_have(bucket[path]) for path in file.paths):
                there = [path for path in file.paths if path in bucket]
                wrong.append(f"TORN {there}" if there else f"LOST {sorted(file.paths)}")
        for path, content in bucket.items():
            if not any(file.may_be_at(path, content) for file in self.files):
                wrong.append(f"FOREIGN {path} with {len(content)} bytes")
        return wrong
