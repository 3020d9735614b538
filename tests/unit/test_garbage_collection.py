"""What is garbage in a cycle goes when memory is given back, however seldom Python looks for it by itself."""

import gc
import weakref

from stream_calib.garbage_collection import give_back_memory


class Node:
    itself: object


def test_a_cycle_is_collected() -> None:
    gc.disable()
    try:
        node = Node()
        node.itself = node
        alive = weakref.ref(node)
        del node
        assert alive() is not None
        give_back_memory()
        assert alive() is None
    finally:
        gc.enable()
