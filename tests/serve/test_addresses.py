"""Which addresses a client may make the server call."""

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from whet.errors import UserError
from whet.serve.addresses import MOST_ADDRESSES, AddressRules
from whet.serve.problems import Code, Refused

PUBLIC = "93.184.215.14"
ENTRIES = ["api.example.com", "*.models.example", "internal.example:8000", "10.0.0.5:8000", "127.0.0.1:*", "fd00::/8"]


def dns(**names: list[str]) -> Callable[[str, int], Awaitable[list[str]]]:
    """A resolver of these names, with `_` for a dot. It counts as unknown what it does not have."""

    async def resolve(host: str, port: int) -> list[str]:
        if (found := names.get(host.replace(".", "_"))) is None:
            raise OSError("unknown")
        return found

    return resolve


KNOWN = dns(
    api_example_com=[PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"],
    a_models_example=[PUBLIC],
    internal_example=["10.0.0.5"],
)


async def allowed(url: str, entries: list[str] | None = None) -> tuple[str, ...]:
    pinned = await AddressRules(entries or ENTRIES, resolve=KNOWN).check(url)
    return pinned.url, *pinned.addresses


async def refusal(rules: AddressRules, url: str) -> Refused:
    with pytest.raises(Refused) as refused:
        await rules.check(url)
    assert "\n" not in str(refused.value)
    return refused.value


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("http://api.example.com", "http://api.example.com"),
        ("HTTPS://API.Example.COM:443/v1?x=%20y", "https://api.example.com/v1?x=%20y"),
        ("https://api.example.com./v1", "https://api.example.com/v1"),
        ("https://a.models.example", "https://a.models.example"),
        ("http://internal.example:8000/v1", "http://internal.example:8000/v1"),
        ("http://10.0.0.5:8000/v1", "http://10.0.0.5:8000/v1"),
        ("http://127.0.0.1:1234", "http://127.0.0.1:1234"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://[::ffff:127.0.0.1]:1234/v1", "http://127.0.0.1:1234/v1"),
        ("http://[FD00:0::1]:9/", "http://[fd00::1]:9/"),
    ],
)
async def test_what_is_listed_is_allowed_in_its_normal_form(url: str, expected: str) -> None:
    assert (await allowed(url))[0] == expected


async def test_the_addresses_of_a_name_are_returned_in_their_order() -> None:
    assert (await allowed("https://api.example.com"))[1:] == (PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c")
    assert (await allowed("http://10.0.0.5:8000"))[1:] == ("10.0.0.5",)


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example.com",
        "https://example.com",
        "https://models.example",  # the wildcard is for names below it
        "https://xmodels.example",
        "https://api.example.com.attacker.example",
        "https://api.example.com:8443",
        "http://api.example.com:443",
        "http://internal.example",
        "http://10.0.0.5:8001",
        "http://10.0.0.6:8000",
        "http://127.0.0.2:80",
        "http://[::1]:80",
        "http://93.184.215.14",  # the address of a listed name is another thing
        "http://localhost:80",
        "http://169.254.169.254",
        "http://[::ffff:169.254.169.254]",
        "http://[64:ff9b::10.0.0.5]:8000",
    ],
)
async def test_what_is_not_listed_is_refused(url: str) -> None:
    assert (await refusal(AddressRules(ENTRIES, resolve=KNOWN), url)).code is Code.FORBIDDEN


@pytest.mark.parametrize(
    "url",
    [
        "https://user@api.example.com",
        "https://user:password@api.example.com/v1",
        "https://attacker.example#@api.example.com",
        "https://api.example.com#fragment",
        "https://api.example.com\\@attacker.example",
        "https://api.example.com%2eattacker.example",
        "https://%61pi.example.com",
        "https://api.example.com..",
        "https://.api.example.com",
        "https://api..example.com",
        "https://-api.example.com",
        "https://api.example.com:",
        "https://api.example.com:0",
        "https://api.example.com:65536",
        "https://api.example.com:99999999999",
        "https://api.example.com:+443",
        "https://api.example.com:4４3",
        "https://аpi.example.com",  # the first letter is Cyrillic
        "https://api。example.com",
        "https://ａpi.example.com",
        "https://127.0.0.１",
        "https://①②⑦.0.0.1",
        "httpſ://api.example.com",
        "ftp://api.example.com",
        "file:///etc/passwd",
        "gopher://127.0.0.1",
        "//api.example.com",
        "api.example.com",
        "https:api.example.com",
        "https:///api.example.com",
        "https://",
        "",
        "https://api.example.com/a b",
        "https://api.example.com/\r\nHost: attacker.example",
        "https://api.example.com\t",
        "https://api.example.com\x00",
        " https://api.example.com",
        "https://api.example.com/\u202e",
        "https://[::1",
        "https://[fe80::1%25eth0]",
        "https://[::1]attacker.example",
        "https://[127.0.0.1]",
        "http://2130706433",
        "http://0x7f000001",
        "http://0x7f.0.0.1",
        "http://017700000001",
        "http://0177.0.0.1",
        "http://127.1",
        "http://127.0.1",
        "http://127.0.0.01",
        "http://127.0.0.1.1",
        "http://256.0.0.1",
        "http://1.2.3.0x",
        "http://" + "a." * 130 + "com",
        "http://" + "a" * 64 + ".com",
    ],
)
async def test_what_readers_of_addresses_disagree_about_is_refused(url: str) -> None:
    assert (await refusal(AddressRules([*ENTRIES, "*"], resolve=KNOWN), url)).code is Code.INVALID


PRIVATE = [
    "10.0.0.6",
    "172.16.0.1",
    "192.168.1.1",
    "127.0.0.1",
    "127.255.0.1",
    "0.0.0.0",
    "100.64.0.1",
    "169.254.169.254",
    "192.0.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.6",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:5db8:d70e::1",
    "2001:0:5db8:d70e::1",
    "2001:db8::1",
    "fc00::1",
    "fd12::1",
    "fe80::1",
    "fe80::1%2",
    "fec0::1",
    "ff02::1",
    "4000::1",
]


@pytest.mark.parametrize("address", PRIVATE)
@pytest.mark.parametrize("entry", ["api.example.com", "*.example.com", "*"])
async def test_a_listed_name_of_a_private_address_is_refused_unless_that_is_listed(address: str, entry: str) -> None:
    resolve = dns(api_example_com=[PUBLIC, address])
    refused = await refusal(AddressRules([entry], resolve=resolve), "https://api.example.com")
    assert refused.code is Code.FORBIDDEN
    assert address not in str(refused)
    if "%" not in address:
        listed = f"[{address}]" if ":" in address else address
        pinned = await AddressRules([entry, f"{listed}:443"], resolve=resolve).check("https://api.example.com")
        assert pinned.addresses[0] == PUBLIC
        await refusal(AddressRules([entry, f"{listed}:444"], resolve=resolve), "https://api.example.com")


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::8.8.8.8"])
async def test_a_star_allows_public_addresses(address: str) -> None:
    shown = f"[{address}]" if ":" in address else address
    pinned = await AddressRules(["*"]).check(f"http://{shown}:8000")
    assert ipaddress.ip_address(pinned.addresses[0]) == ipaddress.ip_address(address)


@pytest.mark.parametrize("address", [one for one in PRIVATE if "%" not in one])
async def test_a_star_does_not_allow_private_addresses(address: str) -> None:
    shown = f"[{address}]" if ":" in address else address
    assert (await refusal(AddressRules(["*"]), f"http://{shown}")).code is Code.FORBIDDEN


async def test_an_empty_list_allows_nothing() -> None:
    for url in ("https://api.example.com", "http://127.0.0.1:8000", "http://8.8.8.8"):
        assert (await refusal(AddressRules([], resolve=KNOWN), url)).code is Code.FORBIDDEN


async def test_names_that_are_not_listed_are_not_looked_up() -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return [PUBLIC]

    await refusal(AddressRules(["api.example.com"], resolve=resolve), "https://secret.attacker.example")
    assert asked == []


async def test_a_name_without_address_is_refused() -> None:
    for resolve in (dns(), dns(api_example_com=[])):
        assert (
            await refusal(AddressRules(["api.example.com"], resolve=resolve), "https://api.example.com")
        ).code is Code.INVALID


async def test_the_operators_own_addresses_are_allowed_as_they_are() -> None:
    own = ["http://gpu.internal:8000/v1", "http://10.9.9.9:8000", "https://api.example.com"]
    resolve = dns(gpu_internal=["10.1.2.3"], api_example_com=[PUBLIC])
    rules = AddressRules([], own, resolve)
    assert (await rules.check("http://gpu.internal:8000/v1")).addresses == ("10.1.2.3",)
    assert (await rules.check("http://10.9.9.9:8000/v1")).addresses == ("10.9.9.9",)
    assert (await rules.check("https://API.example.com/v1")).addresses == (PUBLIC,)
    for url in ("http://gpu.internal:8001", "https://gpu.internal:8000", "http://10.9.9.9", "http://10.1.2.3:8000"):
        await refusal(rules, url)


async def test_dns_that_has_no_answer_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.serve.addresses.RESOLVE_AGAIN_SEC", 0.001)
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [PUBLIC]

    pinned = await AddressRules(["api.example.com"], resolve=resolve).check("https://api.example.com")
    assert (pinned.addresses, len(asked)) == ((PUBLIC,), 3)


async def test_localhost_stands_for_the_loopback_addresses() -> None:
    rules = AddressRules(["localhost:8000"], resolve=dns(localhost=["::1", "127.0.0.1", "127.0.0.1"]))
    assert (await rules.check("http://localhost:8000")).addresses == ("::1", "127.0.0.1")
    assert (await rules.check("http://127.0.0.1:8000")).addresses == ("127.0.0.1",)
    await refusal(rules, "http://localhost:8001")


async def test_many_addresses_are_all_checked_and_the_first_are_used() -> None:
    many = [f"93.184.215.{last}" for last in range(1, 41)]
    rules = AddressRules(["api.example.com"], resolve=dns(api_example_com=many))
    assert (await rules.check("https://api.example.com")).addresses == tuple(many[:MOST_ADDRESSES])
    await refusal(
        AddressRules(["api.example.com"], resolve=dns(api_example_com=[*many, "10.0.0.1"])), "https://api.example.com"
    )


async def test_the_systems_resolver_is_asked() -> None:
    pinned = await AddressRules(["localhost:8000"]).check("http://localhost:8000/v1")
    assert {*pinned.addresses} <= {"127.0.0.1", "::1"}
    assert pinned.addresses


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "https://api.example.com",
        "api.example.com/v1",
        "api.example.com:0",
        "api.example.com:99999",
        "api.example.com:http",
        "user@api.example.com",
        "*.10.0.0.1",
        "*.*.example.com",
        "a*.example.com",
        "*.",
        "10.0.0.5/8",
        "10.0.0.0/33",
        "example.com/8",
        "10.1/16",
        "2130706433",
        "*/8",
        "münchen.example",
    ],
)
def test_a_wrong_entry_is_one_line_for_the_operator(entry: str) -> None:
    with pytest.raises(UserError) as error:
        AddressRules([entry])
    assert str(error.value).startswith(f"`allow` has '{entry}'; expected") or "/" in entry
    assert "\n" not in str(error.value)


@given(st.text(max_size=40), st.text(alphabet="abz019.:/@#?%[]\\x-_ ", max_size=30))
async def test_what_is_allowed_reads_the_same_to_the_gateway(anything: str, likely: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [PUBLIC]

    for url in (anything, f"http://{anything}", f"http://{likely}", f"https://{likely}/v1"):
        try:
            pinned = await AddressRules(["*", "0.0.0.0/0", "::/0"], resolve=resolve).check(url)
        except Refused:
            continue
        read = URL(pinned.url)
        assert read.user is None
        assert read.raw_host is not None
        assert read.raw_host in pinned.addresses or not _is_address(read.raw_host)
        scheme, _, rest = pinned.url.partition("://")
        assert (read.scheme, read.host_port_subcomponent) == (scheme, re.split("[/?]", rest)[0])


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
