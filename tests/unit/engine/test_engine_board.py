"""The board over torch's key-value stores: nothing blocks, and one rank wins a swap."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from whet.engine.ranks import BoardLostError, GroupBoard, group_board

distributed = pytest.importorskip("torch.distributed")


def tcp(folder: Path) -> Any:
    return distributed.TCPStore(
        "127.0.0.1", 0, 1, True, timedelta(seconds=30), wait_for_workers=False
    )


def file(folder: Path) -> Any:
    return distributed.FileStore(str(folder / "store"), 2)


def memory(folder: Path) -> Any:
    return distributed.HashStore()


def prefixed(folder: Path) -> Any:
    return distributed.PrefixStore("default_pg", tcp(folder))


@pytest.fixture(params=[tcp, file, memory, prefixed])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    make: Callable[[Path], Any] = request.param
    return make(tmp_path)


class TestEveryStore:
    def test_a_key_that_is_not_there_is_none_at_once(self, store: Any) -> None:
        assert GroupBoard(store, 0, 2).get("nothing") is None

    def test_what_one_rank_sets_another_reads(self, store: Any) -> None:
        GroupBoard(store, 0, 2).set("key", "é {}")
        assert GroupBoard(store, 1, 2).get("key") == "é {}"

    def test_a_swap_needs_what_is_there(self, store: Any) -> None:
        board = GroupBoard(store, 0, 2)
        assert not board.swap("key", "something", "a")
        assert board.get("key") is None
        assert board.swap("key", None, "a")
        assert not board.swap("key", None, "b")
        assert board.swap("key", "a", "b")
        assert board.get("key") == "b"

    @pytest.mark.medium
    def test_of_many_that_swap_at_once_one_wins(self, store: Any) -> None:
        boards = [GroupBoard(store, rank, 8) for rank in range(8)]
        won: list[int] = []
        start = threading.Barrier(8)

        def swap(board: GroupBoard) -> None:
            start.wait()
            if board.swap("key", None, f"rank {board.rank}"):
                won.append(board.rank)

        threads = [threading.Thread(target=swap, args=(board,)) for board in boards]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [f"rank {rank}" for rank in won] == [boards[0].get("key")]


class Stuck:
    """A store whose server has stopped."""

    def __init__(self) -> None:
        self.asked = 0

    def check(self, keys: list[str]) -> bool:
        self.asked += 1
        threading.Event().wait()
        return False


@pytest.mark.medium
def test_a_store_that_does_not_answer_is_lost_and_not_asked_again() -> None:
    store = Stuck()
    board = GroupBoard(store, 0, 2, answer_s=0.05)
    for _ in range(3):
        with pytest.raises(BoardLostError, match="has not answered"):
            board.get("key")
    assert store.asked == 1


def test_a_store_whose_server_is_gone_is_lost(tmp_path: Path) -> None:
    server = tcp(tmp_path)
    client = distributed.TCPStore("127.0.0.1", server.port, 2, False, timedelta(seconds=30))
    board = GroupBoard(client, 1, 2)
    board.set("key", "a")
    del server
    with pytest.raises(BoardLostError, match="failed"):
        _ = [board.get("key") for _ in range(100)]


def test_a_thread_that_waits_in_the_groups_own_store_holds_up_nobody(tmp_path: Path) -> None:
    store = tcp(tmp_path)
    waiting = threading.Thread(target=store.get, args=("ready",), daemon=True)
    waiting.start()
    board = GroupBoard(store, 0, 2)
    board.set("key", "a")
    assert board.get("key") == "a"
    assert waiting.is_alive()
    board.set("ready", "now")
    waiting.join()


def test_without_a_process_group_there_is_no_board() -> None:
    assert group_board() is None
