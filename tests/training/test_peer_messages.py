"""Messages between workers: what arrives is what was sent."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from dadagrad.training.engines.dask.streams.peers import ALIGNMENT, packed, unpacked

arrays = st.sampled_from(["uint8", "uint16", "int64", "float32", "float64"]).flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=1, min_side=0))
)
leaves = arrays | st.integers(0, 2**40) | st.lists(st.text(max_size=3), max_size=3)
messages = st.recursive(
    st.dictionaries(st.sampled_from("abc"), leaves),
    lambda message: st.dictionaries(st.sampled_from("abc"), message),
    max_leaves=12,
)


def same(sent, arrived):
    if isinstance(sent, dict):
        return sent.keys() == arrived.keys() and all(same(sent[k], arrived[k]) for k in sent)
    if not isinstance(sent, np.ndarray):
        return sent == arrived
    aligned = arrived.size == 0 or arrived.ctypes.data % min(ALIGNMENT, arrived.itemsize) == 0
    return aligned and sent.dtype == arrived.dtype and np.array_equal(sent, arrived, equal_nan=True)


@given(messages, st.integers(0, ALIGNMENT - 1))
def test_a_message_arrives_as_it_was_sent_wherever_it_lies_in_memory(message, offset):
    form, content = packed(message)
    memory = np.empty(offset + len(content), np.uint8)
    memory[offset:] = content
    assert same(message, unpacked(form, memory[offset:]))
