"""A configuration file under a running service: what is taken up, refused, said, and when."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service import reload as module
from service.config import Config, ConfigError, load
from service.metrics import ProcessMetrics
from service.reload import Reload

GOOD = """
routes:
  - {name: alpha, provider: acme, dialect: openai-chat, base_url: "https://a.example/v1", model: m}
"""
BAD = GOOD + "nonsense: 1\n"
SUCCESSFUL = "routeproof_config_last_reload_successful"


class Watched:
    """A file and what became of it. `away` makes taking up fail, as when there is no database."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "routeproof.yaml"
        self.path.write_text(GOOD)
        self.taken: list[Config] = []
        self.rotated: list[Sequence[str]] = []
        self.away = False
        self.metrics = ProcessMetrics("here", "0")
        self.metrics.config_reloaded(successful=True)
        self.reload = Reload(self.path, load(self.path, os.environ), self.metrics, self._take_up, self._rotate)

    async def _take_up(self, config: Config) -> None:
        if self.away:
            raise OSError("away")
        self.taken.append(config)

    async def _rotate(self, routes: Sequence[str]) -> None:
        self.rotated.append(routes)

    async def poll(self, content: str | None = None) -> list[str]:
        """Look once, at a new content; the actions that were logged."""
        if content is not None:
            self.path.write_text(content)
        with capture_logs() as lines:
            await self.reload.poll()
        return [line["action"] for line in lines]

    def successful(self) -> float:
        found = re.search(rf'^{SUCCESSFUL}{{location="here"}} (\S+)$', self.metrics.render().decode(), re.MULTILINE)
        assert found
        return float(found[1])


@pytest.fixture
def file(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def test_the_same_content_is_taken_up_only_when_that_is_asked_for(file: Watched) -> None:
    assert await file.poll() == []
    file.reload.force()
    assert await file.poll() == ["config_reloaded"]
    assert await file.poll() == []
    assert len(file.taken) == 1


async def test_a_file_with_mistakes_changes_nothing_and_is_told_of_once(file: Watched) -> None:
    assert await file.poll(BAD) == ["config_refused"]
    assert await file.poll() == []
    file.reload.force()
    assert await file.poll() == ["config_refused"]
    assert (file.taken, file.successful()) == ([], 0)


async def test_a_file_that_is_gone_is_told_of_once(file: Watched) -> None:
    file.path.unlink()
    assert await file.poll() == ["config_refused"]
    assert await file.poll() == []
    assert file.successful() == 0
    assert await file.poll(GOOD) == ["config_restored"]
    assert file.successful() == 1


async def test_taking_mistakes_back_is_no_failed_reload_any_more(file: Watched) -> None:
    await file.poll(BAD)
    assert await file.poll(GOOD) == ["config_restored"]
    assert (file.taken, file.successful()) == ([], 1)
    assert await file.poll() == []
    assert await file.poll(BAD) == ["config_refused"]  # the same mistakes once more
    assert file.successful() == 0


async def test_a_file_that_is_mended_while_its_mistakes_are_read_is_taken_up(
    file: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    mended = GOOD + "# mended\n"

    def mended_at_once(path: Path, *args: object, **options: object) -> Config:
        try:
            return load(path, os.environ)
        except ConfigError:
            path.write_text(mended)
            raise

    monkeypatch.setattr(module, "load", mended_at_once)
    assert await file.poll(BAD) == ["config_refused"]
    assert await file.poll() == ["config_reloaded"]
    assert file.successful() == 1


async def test_what_cant_be_taken_up_is_tried_again_and_said_when_it_is(file: Watched) -> None:
    file.away = True
    file.path.write_text(GOOD.replace("provider", "api_key_env: THIS_IS_NOT_SET, provider"))
    for _ in range(2):
        with capture_logs() as lines, pytest.raises(OSError, match="away"):
            await file.reload.poll()
        assert lines == []
    file.away = False
    assert await file.poll() == ["config_warning", "config_reloaded"]


async def test_what_only_a_restart_changes_stays_however_often_the_file_changes(file: Watched) -> None:
    for number in range(3):
        moved = f"service: {{location: moon, listen: '127.0.0.1:9999'}}\n# {number}\n"
        assert await file.poll(GOOD + moved) == ["config_needs_restart", "config_reloaded"]
    assert {(config.service.location, config.service.port) for config in file.taken} == {("default", 8080)}
    assert await file.poll() == []


async def test_another_secret_has_its_routes_asked(file: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHA_KEY", "the first of the keys")
    await file.poll(GOOD.replace("provider", "api_key_env: ALPHA_KEY, provider"))
    assert await file.poll() == []
    monkeypatch.setenv("ALPHA_KEY", "the second of the keys")
    assert await file.poll() == ["secrets_changed"]
    assert file.rotated == [["alpha"]]
    assert await file.poll() == []
