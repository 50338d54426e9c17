"""No error shows the credentials of a URL."""

import pickle
from string import ascii_letters, digits

import pytest
from helpers.training_cases import make_data
from helpers.zarr_cases import write_zarr
from hypothesis import given
from hypothesis import strategies as st

from dadagrad import train
from dadagrad.errors import DadagradError, InputError, StorageError, on_command_line, redact

SECRETS = st.text(ascii_letters + digits + "+/=%!$&*~-_.@:", min_size=1).map("SECRET{}".format)
HOSTS = st.sampled_from(["bucket", "host.example", "127.0.0.1:8786"])
PATHS = st.text(ascii_letters + "/-._", max_size=20)


# `pathlib` leaves one slash of a URL.
SCHEMES = st.sampled_from(["s3://", "gs://", "http://", "https://", "tcp://", "tls://", "s3:/"])


@given(SCHEMES, SECRETS, HOSTS, PATHS)
def test_the_user_and_password_of_a_url_are_left_out(scheme, secret, host, path):
    text = f"cannot read '{scheme}key:{secret}@{host}/{path}': refused"
    assert redact(text) == f"cannot read '{scheme}{host}/{path}': refused"


@given(st.sampled_from(["s3", "https"]), SECRETS, HOSTS, PATHS)
def test_the_query_of_a_url_is_left_out(scheme, secret, host, path):
    text = f"no object {scheme}://{host}/{path}?X-Signature={secret.replace('/', '')} was found"
    assert redact(text) == f"no object {scheme}://{host}/{path}?... was found"


@given(HOSTS, PATHS)
def test_text_without_credentials_stays(host, path):
    text = f"s3://bucket/day@2/{path}, tcp://{host}, /a:b/c@d, C:/Users/me@b and a?b@c stay"
    assert redact(text) == text


@pytest.mark.parametrize("kind", [DadagradError, InputError, StorageError])
def test_every_error_leaves_them_out(kind):
    error = kind("cannot open tcp://me:SECRET@host:1")
    for shown in (error, pickle.loads(pickle.dumps(error))):
        assert str(shown) == "cannot open tcp://host:1"
        assert "SECRET" not in repr(shown)


def test_a_scheduler_with_a_password_is_refused_and_not_shown(tmp_path):
    data = write_zarr(make_data((9,)), tmp_path / "data")
    for address in ("tcp://me:SECRET@127.0.0.1:1", "me:SECRET@127.0.0.1:1"):
        with pytest.raises(InputError, match="which Dask does not know") as failed:
            train(data, client=address)
        assert "SECRET" not in str(failed.value)


def test_options_are_named_as_the_interface_names_them():
    error = InputError("needed is --label or --no-labels; see `dadagrad ingest --help`")
    assert str(error) == "needed is label= or no_labels=True; see `dadagrad ingest --help`"
    with on_command_line():
        assert "--label or --no-labels" in str(error)
