"""A certificate of version 0.1 is read, checked and written as it was."""

from pathlib import Path

from whet.skills.certificates.certificate import read_certificate
from whet.skills.certificates.checks.arithmetic import problems
from whet.skills.certificates.earlier_words import is_text_of
from whet.skills.certificates.text import format_certificate

EARLIER = Path(__file__).parent / "data" / "version-0.1.json"


def test_an_earlier_certificate_holds_and_keeps_every_stored_key() -> None:
    certificate = read_certificate(EARLIER)
    assert problems(certificate) == []
    assert certificate.model_dump_json(indent=1) + "\n" == EARLIER.read_text()


def test_the_page_of_an_earlier_certificate_still_belongs_to_it() -> None:
    certificate, page = read_certificate(EARLIER), EARLIER.with_suffix(".md").read_text()
    assert is_text_of(page, certificate)
    assert is_text_of(format_certificate(certificate), certificate)
    assert page != format_certificate(certificate)
    assert not is_text_of(page.replace("+18.6", "+28.6"), certificate)
    assert not is_text_of(f"{page}It is +90 points.\n", certificate)
