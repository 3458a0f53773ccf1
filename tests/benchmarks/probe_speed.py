"""CPU per streamed probe, as a ratio to a bare asyncio client that reads the same bytes, and probes a second.

    python -m tests.benchmarks.probe_speed --probes 2000 --at-once 64

The scripted provider runs in a process of its own, so that its CPU isn't counted. Both sides alternate in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import uvloop

from service.demo.provider import Provider
from service.model import Credentials, Route, Secret
from service.probe import Moment, Prober
from service.transport import Transport
from tests.peer import load_corpus

SCENARIO = "baseline-chat-native-tools"


def serve(pipe: Connection) -> None:
    async def main() -> None:
        async with Provider(load_corpus([SCENARIO])) as provider:
            pipe.send(provider.url(SCENARIO))
            await asyncio.get_running_loop().run_in_executor(None, pipe.recv)

    uvloop.run(main())


async def bare(url: str, probes: int, at_once: int) -> None:
    """Send the same request on a socket, read the answer to its end, look at nothing."""
    parts = urlsplit(url)
    name = "record_probe_value_exactly_once"
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":1024,"stream_options":'
        b'{"include_usage":true},"tools":[{"type":"function","function":{"name":"%b"}}],"tool_choice":{"type":"function",'
        b'"function":{"name":"%b"}}}' % (name.encode(), name.encode())
    )
    head = f"POST {parts.path}/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    slots = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with slots:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(head.encode() + body)
            answer = await reader.read()
            while piece := await reader.read():
                answer += piece
            writer.close()
            await writer.wait_closed()
            assert b"[DONE]" in answer

    await asyncio.gather(*(one() for _ in range(probes)))


async def probed(url: str, probes: int, at_once: int) -> None:
    route = Route(id="r", name="r", provider="p", dialect="openai-chat", base_url=url, model="m")
    credentials = Credentials(key=Secret("sk-test-0123456789abcdef"))
    slots = asyncio.Semaphore(at_once)
    async with Transport() as transport:
        prober = Prober(transport, "here")

        async def one() -> None:
            async with slots:
                probed = await prober.probe(route, "native_tools", credentials, Moment.now())
                assert probed.verdict.status == "tools_supported", probed.verdict

        await asyncio.gather(*(one() for _ in range(probes)))


async def measure(url: str, probes: int, at_once: int, rounds: int) -> None:
    ratios, speeds = [], []
    for _ in range(rounds):
        cpu = []
        for side in (bare, probed):
            wall, used = time.perf_counter(), time.process_time()
            await side(url, probes, at_once)
            cpu.append((time.process_time() - used) / probes * 1000)
            speeds.append(probes / (time.perf_counter() - wall))
        ratios.append(cpu[1] / cpu[0])
        print(f"bare {cpu[0]:.2f} ms, probe {cpu[1]:.2f} ms of CPU: ratio {ratios[-1]:.2f}; {speeds[-1]:.0f} probes/s")
    print(f"median ratio {sorted(ratios)[len(ratios) // 2]:.2f}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--probes", type=int, default=2000)
    arguments.add_argument("--at-once", type=int, default=64)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    peer = context.Process(target=serve, args=(theirs,), daemon=True)
    peer.start()
    uvloop.run(measure(ours.recv(), given.probes, given.at_once, given.rounds))
    ours.send("end")
    peer.join(5)


if __name__ == "__main__":
    main()
