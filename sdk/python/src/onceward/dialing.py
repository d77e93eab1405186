"""Connections that another thread may give up, also while they are being made."""

from __future__ import annotations

import errno
import http.client
import os
import select
import socket
import ssl
import threading

from .errors import Unreachable


class Call:
    """A call on its way, which another thread may give up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._given_up = threading.Event()

    @property
    def aborted(self) -> bool:
        return self._given_up.is_set()

    def abort(self) -> None:
        with self._lock:
            self._given_up.set()
            if self._socket is None:
                return
            try:
                # Wakes the thread that waits for it; closing alone would not.
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It is gone already, which is what was wanted.

    def begin(self, sock: socket.socket | None) -> None:
        with self._lock:
            self._socket = sock
            if self.aborted:
                raise Unreachable("given up")

    def end(self) -> None:
        with self._lock:
            self._socket = None

    def pause(self, seconds: float) -> None:
        """Waits; less long where it is given up."""
        self._given_up.wait(seconds)


class Connection(http.client.HTTPConnection):
    """One that belongs to a call while it is being made. Only asking for an address cannot be given up."""

    def __init__(self, host: str, port: int | None, *, timeout: float, connecting: float, tls: ssl.SSLContext | None) -> None:
        self.default_port = http.client.HTTP_PORT if tls is None else http.client.HTTPS_PORT
        super().__init__(host, port or self.default_port, timeout=timeout)
        self._connecting = min(connecting, timeout)
        self._tls = tls
        #: Whether anybody was there.
        self.answered = False

    def connect_for(self, call: Call) -> None:
        sock = _dial(self.host, self.port, self._connecting, call)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock.settimeout(self._connecting)
                wrapped = self._tls.wrap_socket(sock, server_hostname=self.host, do_handshake_on_connect=False)
                sock = wrapped
                call.begin(wrapped)
                wrapped.do_handshake()
            sock.settimeout(self.timeout)
        except BaseException:
            sock.close()
            raise
        self.sock = sock
        self.answered = True


def _dial(host: str, port: int, timeout: float, call: Call) -> socket.socket:
    """The first of its addresses that answers."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            _hope(sock.connect_ex(address))
            # Only now: what has not begun cannot be broken off.
            call.begin(sock)
            if not _answers(sock, timeout):
                raise TimeoutError(errno.ETIMEDOUT, f"no connection in {timeout:g} s")
            _hope(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            call.begin(sock)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        if call.aborted:
            break
    raise failure or OSError(f"{host} has no address")


def _hope(code: int) -> None:
    if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
        raise OSError(code, os.strerror(code))


def _answers(sock: socket.socket, timeout: float) -> bool:
    if not hasattr(select, "poll"):  # Windows, where a failure is no answer
        _, answered, failed = select.select([], [sock], [sock], timeout)
        return bool(answered or failed)
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(timeout * 1000))


def has_news(sock: socket.socket) -> bool:
    """Nobody was asked anything, so news means that the other side has hung up."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
