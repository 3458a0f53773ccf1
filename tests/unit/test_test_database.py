"""Where the tests' own PostgreSQL comes from."""

from __future__ import annotations

import pytest

from tests.postgres import NoDatabaseError, Source, choose


@pytest.mark.parametrize(
    ("environ", "docker", "expected"),
    [
        ({"TEST_DATABASE_URL": "postgresql://db/x"}, True, Source.ADDRESS),
        ({"TEST_DATABASE_URL": "postgresql://db/x", "TEST_DATABASE": "docker"}, False, Source.ADDRESS),
        ({"TEST_DATABASE_URL": ""}, True, Source.DOCKER),
        ({}, True, Source.DOCKER),
        ({}, False, Source.EMBEDDED),
        ({"TEST_DATABASE": "docker"}, True, Source.DOCKER),
        ({"TEST_DATABASE": "embedded"}, True, Source.EMBEDDED),
    ],
)
def test_the_address_comes_first_then_docker_then_the_embedded_server(
    environ: dict[str, str], docker: bool, expected: Source
) -> None:
    assert choose(environ, lambda: docker) is expected


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("docker", "TEST_DATABASE asks for Docker, and no Docker engine answers"),
        ("podman", "TEST_DATABASE is 'podman': it may be `docker`, `embedded` or unset"),
    ],
)
def test_a_wish_that_cant_be_met_fails_loudly(wish: str, message: str) -> None:
    with pytest.raises(NoDatabaseError) as caught:
        choose({"TEST_DATABASE": wish}, lambda: False)
    assert str(caught.value) == message


@pytest.mark.parametrize("environ", [{"TEST_DATABASE_URL": "postgresql://db/x"}, {"TEST_DATABASE": "embedded"}])
def test_docker_is_asked_only_where_its_answer_matters(environ: dict[str, str]) -> None:
    def unasked() -> bool:
        raise AssertionError("asked")

    choose(environ, unasked)
