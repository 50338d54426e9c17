"""Names of the package."""

import dadagrad


def test_every_public_name_exists():
    assert set(dadagrad.__all__) == {name for name in dadagrad.__all__ if getattr(dadagrad, name)}
    assert set(dadagrad.__all__) <= set(dir(dadagrad))
