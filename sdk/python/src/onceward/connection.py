"""Connections that another thread can abort, also while they are being established."""

from __future__ import annotations

import errno
import http.client
import os
import select
import socket
import ssl
import threading

from .errors import UnreachableError


class AbortHandle:
    """Aborts a request of another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = threading.Event()

    @property
    def is_aborted(self) -> bool:
        return self._aborted.is_set()

    def abort(self) -> None:
        with self._lock:
            self._aborted.set()
            if self._socket is None:
                return
            try:
                # Wakes the thread that waits for the socket; closing it would not.
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # The socket is already closed.

    def attach(self, sock: socket.socket | None) -> None:
        """Sets the socket that `abort` shuts down. Raises if the request is already aborted."""
        with self._lock:
            self._socket = sock
            if self.is_aborted:
                raise UnreachableError("the request was aborted")

    def detach(self) -> None:
        with self._lock:
            self._socket = None

    def sleep(self, seconds: float) -> None:
        """Sleeps, or returns early if the request is aborted."""
        self._aborted.wait(seconds)


class Connection(http.client.HTTPConnection):
    """A connection that can be aborted while it is being established. Only the address lookup cannot be aborted."""

    def __init__(
        self, host: str, port: int | None, *, timeout: float, connect_timeout: float, tls: ssl.SSLContext | None
    ) -> None:
        self.default_port = http.client.HTTP_PORT if tls is None else http.client.HTTPS_PORT
        super().__init__(host, port or self.default_port, timeout=timeout)
        self._connect_timeout = min(connect_timeout, timeout)
        self._tls = tls
        #: Whether the connection was ever established.
        self.was_connected = False

    def connect_abortable(self, abort_handle: AbortHandle) -> None:
        sock = _connect_any(self.host, self.port, self._connect_timeout, abort_handle)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock.settimeout(self._connect_timeout)
                wrapped = self._tls.wrap_socket(sock, server_hostname=self.host, do_handshake_on_connect=False)
                sock = wrapped
                abort_handle.attach(wrapped)
                wrapped.do_handshake()
            sock.settimeout(self.timeout)
        except BaseException:
            sock.close()
            raise
        self.sock = sock
        self.was_connected = True


def _connect_any(host: str, port: int, timeout: float, abort_handle: AbortHandle) -> socket.socket:
    """Connects to the first address of the host that accepts."""
    last_error: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            _raise_if_failed(sock.connect_ex(address))
            # Not earlier: only a socket that is connecting can be shut down.
            abort_handle.attach(sock)
            if not _wait_writable(sock, timeout):
                raise TimeoutError(errno.ETIMEDOUT, f"no connection within {timeout:g} s")
            _raise_if_failed(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            abort_handle.attach(sock)
            return sock
        except OSError as error:
            sock.close()
            last_error = error
        except BaseException:
            sock.close()
            raise
        if abort_handle.is_aborted:
            break
    raise last_error or OSError(f"{host} has no address")


def _raise_if_failed(code: int) -> None:
    if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
        raise OSError(code, os.strerror(code))


def _wait_writable(sock: socket.socket, timeout: float) -> bool:
    if not hasattr(select, "poll"):  # Windows, which reports a failed connect as an exception.
        _, writable, failed = select.select([], [sock], [sock], timeout)
        return bool(writable or failed)
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(timeout * 1000))


def is_closed_by_peer(sock: socket.socket) -> bool:
    """Returns whether the peer closed an idle connection: without a request, only the end of the connection is readable."""
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
