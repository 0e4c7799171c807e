"""Which repositories a night works on: those whose own settings are right, and ask for nothing that the user did
not allow."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from whet.agents import CliAgent, agent_named
from whet.agents.registry import KINDS
from whet.errors import UserError, did_you_mean
from whet.runs.config import Config
from whet.skills.adoption.files import find_place, read_place
from whet.sleep.night.consent import NoConsentError, refuse_without_consent
from whet.sleep.night.targets import find_targets
from whet.sleep.options import SleepOptions
from whet.sleep.repository_settings import RepositorySettings, read_settings
from whet.sleep.staging import decode
from whet.sleep.store import SleepStore


def refuse_unrecorded(name: str, options: SleepOptions, config: Config) -> None:
    """UserError if an agent is to use a login with which its calls cannot be recorded."""
    agent = agent_named(name, config.agents)
    if options.login and isinstance(agent, CliAgent) and agent.traits.login_url is None:
        raise UserError(
            f"`login` is set, but the calls of '{name}' cannot be recorded with its login, and a night "
            "judges by recorded calls; give it a model with a key, or choose claude-code or codex with `agent`"
        )


@dataclass(frozen=True, slots=True)
class RepositoryCheck:
    """Reads the settings of repositories, and checks what they ask for."""

    options: SleepOptions
    config: Config
    """The user's own: agents that a repository declares are not known here."""
    endpoints: Callable[[str], list[str]]
    """Where files are sent if this agent works."""
    agent: Callable[[RepositorySettings], str]
    """The agent that works for a repository."""
    home: Path
    store: SleepStore
    consent: bool
    """Whether the user must have agreed to these endpoints by now."""

    def choose(self, repositories: Iterable[Path]) -> tuple[dict[Path, RepositorySettings], tuple[str, ...]]:
        """The repositories to work on, and the reasons why others are left out."""
        chosen: dict[Path, RepositorySettings] = {}
        left_out: list[str] = []
        for repository in repositories:
            try:
                own = read_settings(repository, self.options)
                if own.agent is not None:
                    self._check_agent(own.agent, f"{own.file}: [sleep]: key 'agent' is '{own.agent}'")
                self._check_targets(repository, own)
            except UserError as error:
                left_out.append(str(error))
            else:
                chosen[repository] = own
        return chosen, tuple(left_out)

    def _check_targets(self, repository: Path, own: RepositorySettings) -> None:
        """UserError if a memory file cannot take an edit, before anything is paid for it."""
        for target in find_targets(repository, own.targets, self.agent(own)):
            place = find_place(target, [repository, self.home])
            decode(read_place(place), place.shown)

    def _check_agent(self, name: str, where: str) -> None:
        """UserError unless an agent that a repository names is whet's or the user's own, works here, and sends files
        only where the user agreed to."""
        known = {*self.config.agents, *KINDS}
        if name not in known:  # such as `command:ARGV`, which would be the repository's own
            raise UserError(f"{where}; {did_you_mean(name, known)}")
        try:
            refuse_unrecorded(name, self.options, self.config)
            agent = agent_named(name, self.config.agents)
            if isinstance(agent, CliAgent):
                agent.check()
            for endpoint in self.endpoints(name) if self.consent else ():
                refuse_without_consent(self.store, endpoint)
        except NoConsentError as error:
            raise UserError(
                f"{where}, which would send files to {error.endpoint}, and you have not agreed to that; agree once "
                f"by running a night with `agent` '{name}' and `consent`"
            ) from error
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
