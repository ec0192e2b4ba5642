"""Where the server may listen."""

from __future__ import annotations

import ipaddress

import pytest

from penstock.control.api.listen import listen
from penstock.errors import PenstockError


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.9.9.9"])
def test_this_machine_needs_no_certificate(host: str) -> None:
    with listen(host, 0, tls=False, insecure=False) as socket:
        address, port = socket.getsockname()[:2]
    assert ipaddress.ip_address(address).is_loopback
    assert port > 0


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "localhost.example.org", "10.0.0.1"])
def test_elsewhere_it_takes_a_certificate_or_a_clear_word(host: str) -> None:
    with pytest.raises(PenstockError) as raised:
        listen(host, 0, tls=False, insecure=False)
    assert (raised.value.code, raised.value.exit_code) == ("BIND_REFUSED", 4)


def test_a_port_that_is_taken_is_told() -> None:
    first = listen("127.0.0.1", 0, tls=False, insecure=False)
    with pytest.raises(PenstockError) as raised:
        listen("127.0.0.1", first.getsockname()[1], tls=True, insecure=False)
    first.close()
    assert raised.value.code == "PORT_TAKEN"
