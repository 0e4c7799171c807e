"""Sessions: slots, attached sockets, and the end of idle ones."""

import pytest

from whet.client.openenv_models import RolloutResult
from whet.serve.openenv.sessions import UNATTENDED_SEC, WANTED_SEC, CapacityError, SessionError, Sessions


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def end() -> None:
    pass


def test_at_capacity_the_counts_are_named() -> None:
    sessions = Sessions(2, 60)
    sessions.create("a"), sessions.create("a")
    with pytest.raises(CapacityError) as full:
        sessions.create("a")
    assert str(full.value) == "Server at capacity: 2/2 sessions active. Cannot accept new connections."


def test_a_session_of_another_caller_is_unknown() -> None:
    sessions = Sessions(2, 60)
    session = sessions.create("a")
    with pytest.raises(SessionError, match=f"^Unknown session_id: {session.id}$"):
        sessions.find(session.id, "b")
    assert sessions.find(session.id, "a") is session


def test_one_socket_per_session() -> None:
    sessions = Sessions(1, 60)
    session = sessions.create("a")
    sessions.attach(session, end)
    with pytest.raises(SessionError, match=f"^Session {session.id} already has an attached WebSocket$"):
        sessions.attach(session, end)
    sessions.detach(session)
    sessions.attach(session, end)


def test_a_lost_socket_does_not_end_its_session_unless_a_close_is_pending() -> None:
    sessions = Sessions(1, 600)
    session = sessions.create("a")
    sessions.attach(session, end)
    sessions.detach(session)
    assert len(sessions) == 1
    sessions.attach(session, end)
    session.closing = True
    sessions.detach(session)
    assert len(sessions) == 0


def test_idle_sessions_are_given_up_and_their_sockets_closed() -> None:
    clock, ended = Clock(), []
    sessions = Sessions(3, 600, clock)
    busy, idle, attached = (sessions.create("a") for _ in range(3))
    with idle.use():
        pass
    sessions.attach(attached, lambda: ended.append(attached.id))
    with busy.use():
        clock.now = 599
        assert sessions.reap() == 0
        clock.now = 601
        assert sessions.reap() == 2
    assert ended == [attached.id]
    assert sessions.find(busy.id, "a") is busy
    with pytest.raises(SessionError):
        sessions.find(idle.id, "a")


def test_a_session_that_never_had_a_socket_or_lost_it_is_given_up_sooner() -> None:
    clock = Clock()
    sessions = Sessions(1, 6000, clock)
    sessions.create("a")
    clock.now = UNATTENDED_SEC + 1
    assert sessions.reap() == 1
    clock.now = 0
    session = sessions.create("a")
    sessions.attach(session, end)
    sessions.detach(session)
    clock.now = UNATTENDED_SEC + 1
    assert sessions.reap() == 1
    session = sessions.create("a")
    sessions.attach(session, end)
    sessions.detach(session)
    with session.use():
        pass
    clock.now += UNATTENDED_SEC + 1
    assert sessions.reap() == 0  # it was used over HTTP since


def test_a_full_server_takes_the_slot_of_a_session_whose_socket_was_lost() -> None:
    clock = Clock()
    sessions = Sessions(1, 600, clock)
    lost = sessions.create("a")
    sessions.attach(lost, end)
    sessions.detach(lost)
    with pytest.raises(CapacityError):
        sessions.create("b")  # its client may come back in a moment
    clock.now = WANTED_SEC + 1
    sessions.create("b")
    with pytest.raises(SessionError):
        sessions.find(lost.id, "a")


def test_a_full_server_takes_the_slot_of_an_idle_session() -> None:
    clock = Clock()
    sessions = Sessions(1, 600, clock)
    sessions.create("a")
    clock.now = 601
    sessions.create("b")


def test_the_state_counts_rollouts_and_lists_those_that_run() -> None:
    session = Sessions(1, 60).create("a")
    with session.running(["r1", "r2"]):
        assert session.state.running_rollouts == ["r1", "r2"]
    session.count_rollouts(RolloutResult(reward=0.5, task_id="t", sandbox_id="r1"))
    session.count_rollouts(RolloutResult(reward=None, rollouts=[RolloutResult(), RolloutResult()]))
    assert (session.state.rollouts_completed, session.state.last_reward, session.state.last_task_id) == (3, None, "")
    session.reset("ep-7", 5)
    assert (session.state.episode_id, session.state.step_count, session.state.rollouts_completed) == ("ep-7", 0, 0)
    assert session.seed == 5
