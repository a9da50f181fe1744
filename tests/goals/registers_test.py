"""Whether the registers see what is lost or old: python3 tests/goals/registers_test.py"""

import threading
import types

import registers
from registers import ABSENT, Load, Register, content

KEY, NODE = "w0/0", types.SimpleNamespace(name="a")


def done(register, state, is_acknowledged=True):
    register.begins(state)
    register.ends(state, is_acknowledged)


def wrong(before, answer, meanwhile=lambda register: None, listing=False):
    """How many reads are wrong, of one that is answered so."""
    load = object.__new__(Load)
    load.bucket, load.registers, load.wrong, load.counts, load.internal = "b", {KEY: Register()}, [], {}, []
    load.lock = threading.Lock()
    for state in before:
        done(load.registers[KEY], state)

    def ask(*_, **__):
        meanwhile(load.registers[KEY])
        return answer

    registers.ask = ask
    load.list(NODE) if listing else load.check(NODE, KEY)
    return len(load.wrong)


def main():
    one, two, none = (200, content(KEY, 1, 10)), (200, content(KEY, 2, 10)), (404, b"")
    shown, empty = (200, f"<Key>{KEY}</Key>".encode()), (200, b"")
    put, remove = lambda register: done(register, "2 10"), lambda register: done(register, ABSENT)
    cases = [
        ("the newest", 0, wrong(["1 10", "2 10"], two)),
        ("an old content", 1, wrong(["1 10", "2 10"], one)),
        ("an old content while another was written", 1, wrong(["1 10", "3 10"], one, put)),
        ("lost", 1, wrong([ABSENT, "1 10"], none)),
        ("removed, and there again", 1, wrong(["1 10", ABSENT], one)),
        ("the content before, replaced meanwhile", 0, wrong(["1 10"], one, put)),
        ("begun and ended meanwhile", 0, wrong(["1 10"], two, lambda register: (put(register), remove(register)))),
        ("not answered, done late", 0, wrong([], one, lambda register: done(register, "1 10", False))),
        ("listed", 0, wrong(["1 10"], shown, listing=True)),
        ("not listed", 1, wrong([ABSENT, "1 10"], empty, listing=True)),
        ("listed after it was removed", 1, wrong(["1 10", ABSENT], shown, listing=True)),
        ("not listed, removed and put meanwhile", 0, wrong(["1 10"], empty, lambda register: (remove(register), put(register)), True)),
        ("listed, put and removed meanwhile", 0, wrong([], shown, lambda register: (put(register), remove(register)), True)),
    ]
    for what, expected, found in cases:
        assert found == expected, f"{what}: {found} wrong"
    print(f"{len(cases)} cases of registers")


main()
