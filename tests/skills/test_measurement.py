"""Keys of rollouts: their texts and ids are on disk, so they never change."""

import pytest

from whet.skills.measurement import RolloutKey, RunPart, Side


@pytest.mark.parametrize(
    ("key", "text", "rollout", "part"),
    [
        (RolloutKey.search(1, "train-3", "5ec7"), "dev/1/train-3/5ec7", "f2e868fa4fd9", RunPart.SEARCH),
        (RolloutKey.search(12, "train-3", "5ec7", 2), "dev/12/train-3/5ec7/2", "076f4911e69a", RunPart.SEARCH),
        (RolloutKey.audit("again", "train-3"), "audit/again/train-3", "59fb43f7e866", RunPart.SEARCH),
        (RolloutKey.audit("without", "train-3"), "audit/without/train-3", "b5c1a748bef1", RunPart.SEARCH),
        (RolloutKey.audit("known", "train-3"), "audit/known/train-3", "9c0206b85154", RunPart.SEARCH),
        (RolloutKey.exam("1f0c", 3, Side.INCUMBENT, "5ec7"), "1f0c/3/incumbent/5ec7", "adf2ef4d0891", RunPart.EXAM),
        (RolloutKey.exam("1f0c", 3, Side.CANDIDATE, "5ec7"), "1f0c/3/candidate/5ec7", "022d7aa3a9e0", RunPart.EXAM),
        (RolloutKey.validation("val-1", "5ec7"), "gate/val-1/5ec7", "84e3cf657d01", RunPart.EXAM),
        (RolloutKey.test("test-1", Side.INCUMBENT, "5ec7"), "test/test-1/incumbent/5ec7", "34f1154adec0", RunPart.TEST),
        (RolloutKey.test("test-1", Side.CANDIDATE, "5ec7"), "test/test-1/candidate/5ec7", "5660b581a6de", RunPart.TEST),
        (RolloutKey.proposal("proposal-0001"), "proposal-0001", "e1c187b6e870", RunPart.PROPOSALS),
    ],
)
def test_a_rollout_keeps_the_id_that_earlier_versions_stored(
    key: RolloutKey, text: str, rollout: str, part: RunPart
) -> None:
    assert (str(key), key.rollout_id, key.part) == (text, rollout, part)
