"""Numbers as people read them."""

from hypothesis import example, given
from hypothesis import strategies as st

from dadagrad.summary import significant


@given(st.floats(1e-4, 9.9e5))
@example(999.6)
def test_a_loss_has_three_digits_and_no_exponent(loss):
    text = significant(loss)
    assert "e" not in text
    assert abs(float(text.replace(",", "")) - loss) <= 0.00501 * loss
