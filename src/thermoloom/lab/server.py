"""The server of the lab: a page, its WebSocket and downloads, on loopback alone.

The server refuses an address that is not loopback, a Host header that does not name this server
(such as a foreign name that resolves to it), and an Origin other than its own page. The headers of
every answer forbid the page from loading anything from elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvicorn
import websockets  # noqa: F401  # uvicorn's WebSockets; without it there are none
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from thermoloom.computers.computer import Computer
from thermoloom.engines import engine
from thermoloom.errors import UserError
from thermoloom.lab import downloads
from thermoloom.lab.messages import MESSAGE_BYTES
from thermoloom.lab.viewer import SEND_SECONDS, Bench, Viewer, packed
from thermoloom.threads import available_cores, process_threads, threads

PAGE = Path(__file__).parent / "page"
NAMES = ("127.0.0.1", "localhost")
MOST_VIEWERS = 16
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self' {sockets}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

Prepare = Callable[[Callable[[str], None]], Computer]
"""``prepare(say)`` returns the computer of the lab; ``say(text)`` reports its progress."""


class Lab:
    """State of the server: the shared bench and the open pages."""

    def __init__(self, prepare: Prepare) -> None:
        self.bench = Bench(
            ThreadPoolExecutor(MOST_VIEWERS, "lab"),
            threading.Semaphore(max(2, available_cores())),
            ThreadPoolExecutor(2, "lab-quick"),
        )
        self.viewers: dict[str, Viewer] = {}
        self._prepare = prepare

    def prepare(self) -> None:
        """Compile kernels and prepare the computer; open pages see the progress."""
        try:
            self.bench.doing = "compiling kernels; this takes about a minute the first time"
            engine().warm_up([], learning=False)
            with threads(available_cores()):  # nobody else computes yet
                computer = self._prepare(lambda text: setattr(self.bench, "doing", text))
            self.bench.computer = computer
            engine().warm_up([])
            self.bench.teaches.set()
        except Exception as error:
            self.bench.doing, self.bench.failed = f"the lab cannot start: {error}", True
            traceback.print_exc()

    @contextlib.asynccontextmanager
    async def living(self, _: Starlette) -> AsyncIterator[None]:
        """Lifespan of the server; at its end all tasks are ended."""
        threading.Thread(target=self.prepare, daemon=True).start()
        try:
            yield
        finally:
            for viewer in self.viewers.values():
                viewer.end_task()
            for pool in (self.bench.pool, self.bench.quick):
                pool.shutdown(wait=False, cancel_futures=True)

    # --- addresses --------------------------------------------------------------------------------

    async def attend(self, page: WebSocket) -> None:
        """One open page, until it is closed."""
        await page.accept()
        turn = asyncio.Lock()

        async def send(content: bytes) -> None:
            async with turn, asyncio.timeout(SEND_SECONDS):
                await page.send_bytes(content)

        if len(self.viewers) >= MOST_VIEWERS:
            text = f"{MOST_VIEWERS} pages are open; close one of them and reload"
            await send(packed("full", None, {"text": text}))
            await page.close(1013)
            return
        viewer = Viewer(self.bench, send)
        self.viewers[viewer.name] = viewer
        at_work = asyncio.create_task(viewer.go_on())
        try:
            while True:
                message = await page.receive()
                if message["type"] == "websocket.disconnect":
                    break
                await viewer.receive(message.get("text") or message.get("bytes") or b"")
        except (WebSocketDisconnect, TimeoutError, RuntimeError):
            pass  # gone in the middle of an answer
        finally:
            viewer.end_task()
            at_work.cancel()
            await asyncio.gather(at_work, return_exceptions=True)
            del self.viewers[viewer.name]

    async def status(self, _: Request) -> Response:
        """How many pages are open, and how many of them have work under way."""
        working = sum(viewer.task is not None for viewer in self.viewers.values())
        return JSONResponse({"viewers": len(self.viewers), "working": working})

    async def export(self, request: Request) -> Response:
        """The computer of a viewer as a file, or its run directory."""
        viewer = self.viewers.get(request.path_params["viewer"])
        if viewer is None:
            return PlainTextResponse("this page is no longer open; reload it\n", 404)
        which, _, name = request.path_params["name"].partition("-")
        if which not in ("given", "taught") or name not in downloads.FILES:
            return PlainTextResponse("no such file\n", 404)
        scene, loop = viewer.scene, asyncio.get_running_loop()
        samples = scene if scene is not None and scene.order.computer == which else None
        try:
            computer, make = viewer.computer(which), downloads.FILES[name]
            data = await loop.run_in_executor(self.bench.quick, make, computer, samples)
        except UserError as error:
            return PlainTextResponse(f"{error}\n", 409)
        disposition = f'attachment; filename="{name}"'
        return Response(data, media_type="application/octet-stream",
                        headers={"content-disposition": disposition})  # fmt: skip

    def application(self) -> Starlette:
        """The ASGI application."""
        application = Starlette(
            routes=[
                WebSocketRoute("/viewer", self.attend),
                Route("/status", self.status),
                Route("/export/{viewer}/{name}", self.export),
                Mount("/", StaticFiles(directory=PAGE, html=True)),
            ],
            middleware=[Middleware(Gate)],
            lifespan=self.living,
        )
        application.state.lab = self
        return application


class Gate:
    """Middleware that admits only requests from this machine to this server."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        why = refused(scope)
        if why and scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": why})
        elif why:
            await PlainTextResponse(f"refused: {why}\n", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, _with_headers(scope, send))


def refused(scope: Any) -> str:
    """Why a request is refused, or ""."""
    port = scope["server"][1]
    hosts = {f"{name}:{port}" for name in NAMES} | (set(NAMES) if port == 80 else set())
    headers: dict[bytes, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name, []).append(value.decode("latin-1").lower())
    client = scope.get("client")
    try:
        near = client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        near = False
    if not near:
        return "not from this machine"
    named = headers.get(b"host", [])
    if len(named) != 1 or named[0] not in hosts:
        return "a Host that is not this server"
    origins = headers.get(b"origin", [])
    if scope["type"] == "websocket" and not origins:
        return "no Origin"
    if any(origin not in {f"http://{host}" for host in hosts} for origin in origins):
        return "a foreign Origin"
    return ""


def _with_headers(scope: Any, send: Any) -> Any:
    port = scope["server"][1]
    sockets = " ".join(f"ws://{name}:{port}" for name in NAMES)
    extra = [(name.encode(), value.format(sockets=sockets).encode())
             for name, value in HEADERS.items()]  # fmt: skip

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sending


# --- the life of the server -----------------------------------------------------------------------


def listening(port: int) -> socket.socket:
    """A socket on loopback at this port, or at any free one if it is 0."""
    server_socket = socket.socket()
    if hasattr(socket, "SO_REUSEADDR"):
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server_socket.bind((NAMES[0], port))
        server_socket.listen()
    except OSError as error:
        server_socket.close()
        reason = error.strerror or str(error)
        raise UserError(f"--port {port}: {reason.lower()}; --port 0 selects any free one") from None
    return server_socket


def server_of(prepare: Prepare) -> uvicorn.Server:
    """The uvicorn server; run it on a socket of ``listening``."""
    return uvicorn.Server(
        uvicorn.Config(
            Lab(prepare).application(),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws_max_size=MESSAGE_BYTES,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=2,
            proxy_headers=False,
        )
    )


def serve(sock: socket.socket, prepare: Prepare) -> None:
    """Serve until interrupted. Each task has one thread, so that viewers share the cores."""
    with process_threads(1):
        server_of(prepare).run(sockets=[sock])
