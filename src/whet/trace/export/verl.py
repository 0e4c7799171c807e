"""`verl`: one agent-loop output per row. The reward is on the last trained token of the rollout's last row."""

from collections.abc import Iterable, Iterator

from whet.gateway.dialects.neutral import Json
from whet.trace.training.rows import Harvest


def records(harvests: Iterable[Harvest]) -> Iterator[Json]:
    for harvest in harvests:
        episode = harvest.episode
        for row in harvest.rows.rows:
            yield {
                "prompt_ids": row.tokens[: row.prompt_len],
                "response_ids": row.tokens[row.prompt_len :],
                "response_mask": row.loss_mask[row.prompt_len :],
                "response_logprobs": row.logprobs[row.prompt_len :],
                "reward_score": episode.reward,
                "num_turns": len(row.calls),
                "metrics": {},
                "extra_fields": {
                    "uid": episode.group,
                    "rollout_id": episode.rollout,
                    "token_level_scores": row.scores(episode.reward or 0.0)[row.prompt_len :],
                    "row_weight": row.weight,
                    "n_rows_in_rollout": row.of,
                    **_global_steps(row.weight_versions(episode.updates)),
                },
            }


def _global_steps(versions: list[str]) -> dict[str, int]:
    """The oldest and the newest step that sampled a row, if its versions are steps."""
    if not versions or not all(version.isdecimal() for version in versions):
        return {}
    steps = [int(version) for version in versions]
    return {"min_global_steps": min(steps), "max_global_steps": max(steps)}
