"""The client's and the node's side: the token is in a file, which may come late and be renewed at any time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from network import Network, token_of
from timeslice import AsyncOrchestratorClient
from timeslice.cli.main import main
from timeslice_api.errors import Forbidden, TokenMissing, Unauthenticated
from timeslice_api.tokens import TokenFile, token_in


def write(path: Path, token: str) -> None:
    """As whoever renews it does."""
    new = path.with_name("new")
    new.write_text(f"{token}\n")
    new.rename(path)


def client_of(network: Network, file: Path, **options: str) -> AsyncOrchestratorClient:
    address = network.running.server.addresses[1]
    return AsyncOrchestratorClient(address, token_file=str(file), node_socket="", **options)  # type: ignore[arg-type]


async def test_a_client_takes_turns_with_the_token_of_its_file(network: Network, tmp_path: Path) -> None:
    write(tmp_path / "token", token_of("trainers"))
    async with client_of(network, tmp_path / "token", job_id="job-a") as client:
        await client.acquire("g", timeout=5)
        await client.yield_("g")
        with pytest.raises(Forbidden, match="is for group g, not for group h"):
            await client.acquire("h", timeout=5)


async def test_a_client_waits_for_its_token_and_says_so(network: Network, tmp_path: Path) -> None:
    waits: list[str] = []
    late = threading.Timer(0.5, write, (tmp_path / "token", token_of("trainers")))
    late.start()
    address = network.running.server.addresses[1]
    async with AsyncOrchestratorClient(
        address,
        job_id="job-a",
        node_socket="",
        token_file=str(tmp_path / "token"),
        on_wait=lambda status: waits.append(status.why),
    ) as client:
        await client.acquire("g", timeout=5)
    assert f"there is no token in {tmp_path / 'token'}: No such file or directory" in waits[0]


async def test_a_client_that_was_told_a_wrong_token_says_what_is_missing(network: Network, tmp_path: Path) -> None:
    write(tmp_path / "token", "forged")
    async with client_of(network, tmp_path / "token", job_id="job-a") as client:
        with pytest.raises(Unauthenticated, match="does not know this token"):
            await client.acquire("g", timeout=5)


async def test_a_renewed_token_is_used_from_the_next_call_on(network: Network, tmp_path: Path) -> None:
    write(tmp_path / "token", token_of("trainers"))
    async with client_of(network, tmp_path / "token", job_id="job-a") as client:
        await client.acquire("g", timeout=5)
        write(tmp_path / "token", token_of("neighbours"))
        with pytest.raises(Forbidden, match="token 'neighbours'"):
            await client.yield_("g")
        write(tmp_path / "token", token_of("trainers"))
        await client.acquire("g", timeout=5)


@pytest.mark.parametrize("content", ["", "\n", "two words", "x" * 9000, "\u00e4", "a\nb"])
def test_what_is_no_token_is_not_sent(tmp_path: Path, content: str) -> None:
    (tmp_path / "token").write_text(content)
    with pytest.raises(TokenMissing, match="holds no token"):
        TokenFile(tmp_path / "token").metadata()


def test_a_token_is_found_in_the_metadata_of_a_call() -> None:
    assert token_in((("user-agent", "x"), ("authorization", "bearer abc"))) == "abc"
    assert token_in((("authorization", "Basic abc"),)) == ""
    assert token_in((("authorization", "Bearer " + "x" * 9000),)) == ""
    assert token_in(()) == ""


async def test_commands_ask_with_the_token_of_their_file(network: Network, tmp_path: Path) -> None:
    write(tmp_path / "token", token_of("trainers"))
    command = [sys.executable, "-c", "import sys; from timeslice.cli.main import main; sys.exit(main())"]
    address = ["--orchestrator", network.running.server.addresses[1], "--token-file", str(tmp_path / "token")]

    async def run(*arguments: str) -> tuple[int, str]:
        import asyncio

        process = await asyncio.create_subprocess_exec(
            *command, *arguments, *address, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = await process.communicate()
        return process.returncode or 0, (out + err).decode()

    status, text = await run("status")
    assert (status, "g" in text) == (0, True), text
    status, text = await run("release", "--force", "g")
    assert status == 1
    assert "token 'trainers' may not release (ask with a token of role admin)" in text


def test_the_command_makes_a_token_and_the_line_that_makes_it_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trainers.token"
    assert main(["token", "--role", "job", "--job", "job-a", "--out", str(out)]) == 0
    line = capsys.readouterr().out
    assert out.stat().st_mode & 0o777 == 0o600
    assert out.read_text().strip() not in line
    from timeslice_orchestrator.access.tokens_file import digest_of, parsed

    (digest,) = found = parsed(f"tokens:\n{line}", "t.yaml")
    assert digest == digest_of(out.read_text().strip())
    assert found[digest].name == "token 'trainers'"
    assert main(["token", "--role", "job", "--out", str(out)]) == 2
    assert "cannot make" in capsys.readouterr().err
    assert main(["token", "--role", "node", "--out", str(tmp_path / "x")]) == 2
