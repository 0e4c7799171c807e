"""Compare a certificate with the terms, settings, tasks, skills and readable page of its run folder, and with the
ledger."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whet.errors import UserError
from whet.runs.store.store import Store
from whet.skill import read_skill
from whet.skills.certificates.certificate import CERTIFICATE
from whet.skills.certificates.checks.check import (
    CheckLine,
    CheckResult,
    CheckState,
    compare,
    count_of,
    judge,
    judge_lines,
    make_line,
    not_checked,
)
from whet.skills.certificates.checks.folder import RunFolder, read_json
from whet.skills.certificates.earlier_words import is_text_of
from whet.skills.certificates.text import READABLE
from whet.skills.documents.history import BEST, SHORTENED, SKILLS, TERMS
from whet.skills.gate.alpha_ledger import find_entry
from whet.skills.gate.seed import SEED, Seed
from whet.skills.measurement import RunPart
from whet.skills.rollouts.terms import CERTIFY_TERMS, MADE_WITH
from whet.version import __version__

WITNESS = (
    "if the folder can be trusted, the seed was fixed when the run started; only a witness of the commitment can say "
    "that no other seed was tried in another folder"
)


def check_terms(run: RunFolder) -> CheckResult:
    """Compare with the terms that were fixed before the first rollout."""
    name, certificate = "terms of the run", run.certificate
    if run.begun is None:
        return not_checked(name, f"neither {TERMS} nor {CERTIFY_TERMS} can be read")
    plan = run.begun.get("plan", {})
    made = certificate.made_with
    claimed = {
        "start": certificate.start,
        "alpha": certificate.alpha,
        "whet": certificate.whet,
        "commitment": certificate.commitment,
        "gate": certificate.gate,
        "agent": _name(made.get("agent")),
        "model": _name(made.get("model")),
        "single": certificate.single,
    }
    found = {
        "start": run.begun.get("skill", run.begun.get("old")),
        "alpha": plan.get("alpha"),
        "whet": run.begun.get("whet"),
        "commitment": run.begun.get("seed"),
        "gate": plan.get("gate"),
        "agent": run.begun.get("agent"),
        "model": run.begun.get("model"),
        "single": run.is_certify or plan.get("one_exam", False),
    }
    wrong = [*_wrong_terms(run, plan), *_wrong_margin(run)]
    if "new" in run.begun and any(record.candidate != run.begun["new"] for record in certificate.records):
        wrong.append(f"certificate: the new skill is not {run.begun['new'][:8]}")
    assert run.terms_file is not None
    right = f"as in {run.terms_file.name}: alpha {certificate.alpha:g}, whet {certificate.whet}"
    return judge_lines(name, compare("certificate:", claimed, found), right, wrong)


def _wrong_terms(run: RunFolder, plan: Mapping[str, Any]) -> Iterator[str]:
    for record in run.certificate.records:
        stored = (("beta", "giving_up", record.terms.beta), ("minimum effect", "worth", record.terms.minimum_effect))
        for name, key, value in stored:
            if value != plan.get(key):
                yield f"exam {record.number}: {name} ({key}) is {value}, expected {plan.get(key)}"
        guard = record.terms.guard and asdict(record.terms.guard)
        if guard != plan.get("guard"):
            yield f"exam {record.number}: its guard is {guard or 'missing'}, expected {plan.get('guard') or 'none'}"
    if run.certificate.shortening is not None:
        level = run.certificate.shortening.record.terms.level
        if level != plan.get("removal_level"):
            yield f"shortening: its level is {level}, expected {plan.get('removal_level')}"


def _wrong_margin(run: RunFolder) -> Iterator[str]:
    """Only `whet certify` may allow a loss. A shorter version has a margin of its own, which the arithmetic checks."""
    assert run.begun is not None
    fixed = run.begun.get("non_inferior", 0.0)
    for record in run.certificate.records:
        if record.terms.margin != fixed:
            yield f"exam {record.number}: margin is {record.terms.margin}, expected {fixed}"


def check_settings(run: RunFolder) -> CheckResult:
    """Compare agent, model and sandbox with the settings file and with the store."""
    name, file = "settings", run.folder / MADE_WITH
    made = read_json(file) if file.is_file() else None
    if made is None or isinstance(run.exam, str):
        return not_checked(name, f"{MADE_WITH} is missing" if made is None else str(run.exam))
    claimed, wrong = run.certificate.made_with, list[str]()
    agent, model = _name(claimed.get("agent")), _name(claimed.get("model"))
    programs = run.exam.about.get("agents") or {}
    if programs.get(agent) != (claimed.get("agent") or {}).get("program"):
        wrong.append(f"agent '{agent}' is not the one in the store of the exams")
    if run.exam.about.get("sandbox") != claimed.get("sandbox"):
        wrong.append(f"sandbox is {claimed.get('sandbox')}, but the store has {run.exam.about.get('sandbox')}")
    others = {(kept.row.agent, kept.row.model) for kept in run.exam.rollouts.values()} - {(agent, model)}
    wrong += [f"the store has rollouts of {' on '.join(other)}" for other in sorted(others)]
    wrong += _other_models(run, str((claimed.get("model") or {}).get("upstream")))
    right = f"{agent} on {model}, in sandbox {claimed.get('sandbox')}"
    return judge_lines(name, compare("made_with:", claimed, made), right, wrong)


def _other_models(run: RunFolder, upstream: str) -> Iterator[str]:
    """Find stored requests for a model that the certificate does not name."""
    with Store.open_read(run.folder / RunPart.EXAM) as store:
        requested = {model for one in store.rollouts() for model in _list_requested_models(store, one.id)}
    others = sorted(requested - {upstream})
    yield from (f"calls of the exams requested model '{one}', not '{upstream}'" for one in others)


def check_tasks(run: RunFolder) -> CheckResult:
    """Compare the digests of the validation tasks."""
    name, claimed = "tasks", run.certificate.tasks
    lines, unordered, looked = list[CheckLine](), list[str](), list[str]()
    if run.begun is not None:
        tasks = run.begun.get("tasks", {})
        tasks = tasks if run.is_certify else tasks.get("validation", {})
        lines += _compare_digests("the terms", claimed, tasks)
        unordered += ["the tasks are not in the order of the terms"] if list(tasks) != list(claimed) else []
        looked.append("the terms")
    if not isinstance(run.exam, str):
        lines += _compare_digests("the store of the exams", claimed, run.exam.tasks)
        looked.append("the store of the exams")
    found = judge_lines(name, lines, f"{len(claimed)} digests match {' and '.join(looked)}", unordered)
    if len(looked) < 2 and found.state is CheckState.OK:
        return not_checked(name, "the terms or the store of the exams are missing")
    return found


def _compare_digests(where: str, claimed: Mapping[str, str], found: Mapping[str, str]) -> Iterator[CheckLine]:
    """A line for every digest that differs, and one for all the others."""
    each = list(compare("task", claimed, found))
    same = [one for one in each if not one.problem]
    yield from (one for one in each if one.problem)
    yield make_line(f"digests of the tasks in {where}", count_of(len(claimed), "digest"), f"{len(same)} the same")


def check_seed(run: RunFolder) -> CheckResult:
    """Compare the seed with the one in the folder, and with the commitment in the terms."""
    name, file = "seed in the folder", run.folder / RunPart.EXAM / SEED
    data = read_json(file) if file.is_file() else None
    if data is None or run.begun is None:
        return not_checked(name, f"{RunPart.EXAM}/{SEED} or the terms are missing")
    seed = Seed.model_validate(data) if set(data) == {"value", "drawn"} else None
    wrong = []
    if seed != run.certificate.seed:
        wrong.append(f"{RunPart.EXAM}/{SEED} has another seed than the certificate")
    if run.begun.get("seed") != run.certificate.seed.commitment:
        wrong.append("the terms of the run have the commitment of another seed")
    return judge(name, wrong, f"matches the commitment in the terms; {WITNESS}")


def check_skills(run: RunFolder) -> CheckResult:
    """Compare the stored skills with the digests in the certificate."""
    name, skills = "skills", run.folder / SKILLS
    if not skills.is_dir():
        return not_checked(name, f"{SKILLS}/ is missing")
    named = {run.certificate.start, run.certificate.certified}
    for record in run.certificate.all_records:
        named |= {record.incumbent, record.candidate}
    lines = [_check_skill(skills / one, one) for one in sorted(named)]
    return judge_lines(name, lines, f"{len(named)} skills have the digests in the certificate")


def _check_skill(place: Path, digest: str) -> CheckLine:
    why = _wrong_skill(place, digest) or ""
    what = f"skill {digest[:8]}, read from its folder"
    return make_line(what, digest, why or digest, wrong=bool(why), problem=f"{SKILLS}/{digest[:8]}: {why}")


def check_handed_out(run: RunFolder) -> CheckResult:
    """Compare the skills that the run hands to its user with the certified ones."""
    name, certificate = "handed-out skills", run.certificate
    expected = {} if run.is_certify else {BEST: certificate.certified}
    shortening = certificate.shortening
    if shortening is not None and shortening.record.findings.verdict == "certified":
        expected[SHORTENED] = shortening.record.candidate
    if not expected:
        return CheckResult(name, CheckState.OK, "none")
    if gone := [place for place in expected if not (run.folder / place).is_dir()]:
        return not_checked(name, f"{gone[0]}/ is missing")
    wrong = [f"{place}/: {why}" for place, one in expected.items() if (why := _wrong_skill(run.folder / place, one))]
    return judge(name, wrong, f"certified: {', '.join(f'{place}/' for place in expected)}")


def check_readable(run: RunFolder) -> CheckResult:
    """Compare the readable page with the certificate."""
    name, file = READABLE, run.folder / READABLE
    if not file.is_file():
        return not_checked(name, "is missing")
    same = is_text_of(file.read_text(encoding="utf-8", errors="replace"), run.certificate)
    if not same and run.certificate.whet != __version__:
        return not_checked(name, f"was written by whet {run.certificate.whet}, which uses other words")
    return judge(name, [] if same else [f"does not match {CERTIFICATE}"], f"matches {CERTIFICATE}")


def check_ledger(run: RunFolder, env: Mapping[str, str]) -> CheckResult:
    """Compare with the entry of the run in the ledger of this machine."""
    name, certificate = "ledger", run.certificate
    try:
        found = find_entry(run.folder, certificate.tasks, env)
    except ValueError as error:
        return CheckResult(name, CheckState.FAILED, str(error))
    if not certificate.records and certificate.used is None:
        return CheckResult(name, CheckState.OK, "there was no exam, so nothing was counted")
    if found is None:
        return not_checked(
            name, "the ledger of this machine has no entry of this run: it ran elsewhere, or the entry was removed"
        )
    wrong = [] if found == certificate.used else [f"used is '{certificate.used}', but the ledger has '{found}'"]
    return judge(name, wrong, str(found))


def _list_requested_models(store: Store, rollout: str) -> Iterator[str]:
    for attempt in store.attempts_of(rollout):
        for exchange in store.each_exchange(attempt.id):
            if not exchange.attempts:  # the gateway refused it or answered it from the record
                continue
            try:
                body = json.loads(exchange.sent or exchange.request)
            except ValueError:
                body = {"model": "(a request that is not JSON)"}
            if isinstance(body, dict) and isinstance(body.get("model"), str):
                yield body["model"]


def _wrong_skill(place: Path, digest: str) -> str | None:
    """Say why a folder does not contain exactly the skill with this digest; None when it does."""
    found = list(place.iterdir()) if place.is_dir() else []
    if len(found) != 1:
        return "expected one skill in it" if found else "is missing"
    try:
        made = read_skill(found[0]).digest
    except UserError as error:
        return str(error)
    return None if made == digest else f"its digest is {made[:8]}, not {digest[:8]}"


def _name(of: object) -> str:
    return str(of.get("name")) if isinstance(of, dict) else str(of)
