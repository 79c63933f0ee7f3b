"""Nothing is sent. A listener of the test's own stands for the world outside: it must not be reached."""

import socket
import socketserver
import threading

import pytest


@pytest.fixture
def listener():
    """Its port, and who connected to it."""
    came = []

    class Door(socketserver.BaseRequestHandler):
        def handle(self):
            came.append(self.client_address)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Door) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], came
        server.shutdown()


def test_the_listener_of_these_tests_sees_who_connects(listener):
    """So that an empty list means something."""
    port, came = listener
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.recv(1)  # until the handler is through
    assert len(came) == 1


def test_a_connection_is_refused_and_told(unchanged, listener):
    port, came = listener
    ran = unchanged(
        """
        import errno, socket, urllib.error, urllib.request
        port = int(sys.argv[1])
        for address in (("127.0.0.1", port), ("192.0.2.1", 443)):
            try:
                socket.create_connection(address, timeout=5)
            except OSError as error:
                assert error.errno == errno.ENETUNREACH, error
            else:
                raise AssertionError
        try:
            urllib.request.urlopen(f"http://localhost:{port}/", timeout=5)
        except urllib.error.URLError:
            pass
        else:
            raise AssertionError
        print(told())
        """,
        str(port),
    )
    assert came == []
    assert f"('NOT_CONNECTED', '127.0.0.1:{port}')" in ran.out
    assert "('NOT_CONNECTED', '192.0.2.1:443')" in ran.out


def test_a_connection_that_does_not_wait_is_refused_at_once(unchanged, listener):
    port, came = listener
    unchanged(
        """
        import asyncio
        async def main():
            await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
        try:
            asyncio.run(main())
        except OSError:
            pass
        else:
            raise AssertionError
        """,
        str(port),
    )
    assert came == []


def test_names_are_not_looked_up(unchanged):
    """As on a machine without a network; numbers and the machine itself are answered."""
    ran = unchanged("""
        import socket
        for ask in (socket.gethostbyname, lambda name: socket.getaddrinfo(name, 443), socket.gethostbyname_ex):
            try:
                ask("huggingface.co")
            except socket.gaierror as error:
                assert error.errno == socket.EAI_AGAIN
            except socket.herror:
                pass
            else:
                raise AssertionError
        assert socket.gethostbyname("127.0.0.1") == "127.0.0.1" == socket.gethostbyname("localhost")
        assert socket.gethostbyname(socket.gethostname()) == "127.0.0.1"
        assert socket.getfqdn("192.0.2.7") == "192.0.2.7"
        print(told())
    """)
    assert ran.out.strip() == repr([("NOT_LOOKED_UP", "huggingface.co")] * 3)


def test_datagrams_are_not_sent(unchanged):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.2)
        ran = unchanged(
            """
            import socket
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            address = ("127.0.0.1", int(sys.argv[1]))
            for send in (
                lambda: sender.sendto(b"x", address),
                lambda: sender.sendmsg([b"x"], [], 0, address),
                lambda: sender.connect(address),
            ):
                try:
                    send()
                except OSError:
                    continue
                raise AssertionError
            print(len(told()))
            """,
            str(receiver.getsockname()[1]),
        )
        with pytest.raises(TimeoutError):
            receiver.recv(1)
    assert ran.out.strip() == "3"


def test_a_script_may_talk_to_itself(unchanged):
    """A rendezvous of one process (torch.distributed), an event loop, a manager of multiprocessing."""
    unchanged("""
        import multiprocessing, os, socket, subprocess, threading
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=lambda: server.accept()[0].sendall(b"hello")).start()
        assert socket.create_connection(server.getsockname()).recv(5) == b"hello"

        local = socket.socket(socket.AF_UNIX)
        local.bind("socket")
        local.listen()
        assert "socket" in os.listdir() and local.getsockname() == os.path.abspath("socket")
        threading.Thread(target=lambda: local.accept()[0].sendall(b"local")).start()
        client = socket.socket(socket.AF_UNIX)
        client.connect("socket")
        assert client.recv(5) == b"local"

        left, right = socket.socketpair()
        left.send(b"x")
        assert right.recv(1) == b"x"

        with multiprocessing.get_context("fork").Manager() as manager:
            shared = manager.dict(a=1)
            assert shared["a"] == 1
        assert "NOT_CONNECTED" not in (found := dict(told())), found
    """)


def test_a_service_behind_a_local_socket_is_not_reached(unchanged, tmp_path_factory):
    """Such as a container engine's."""
    folder = tmp_path_factory.mktemp("service")
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(folder / "engine.sock"))
        service.listen()
        service.settimeout(0.2)
        unchanged(
            """
            import socket
            try:
                socket.socket(socket.AF_UNIX).connect(sys.argv[1])
            except ConnectionRefusedError:
                pass
            else:
                raise AssertionError
            assert told() == [("NOT_CONNECTED", sys.argv[1])]
            """,
            str(folder / "engine.sock"),
        )
        with pytest.raises(TimeoutError):
            service.accept()


def test_a_local_socket_of_a_long_path_is_reached(unchanged):
    """The copy's path is longer than the script's, and an address holds 107 bytes."""
    unchanged("""
        import os, socket
        folder = "f" * 70
        os.mkdir(folder)
        os.chdir(folder)
        server = socket.socket(socket.AF_UNIX)
        server.bind("s")
        server.listen()
        os.chdir("..")
        socket.socket(socket.AF_UNIX).connect(f"{folder}/s")
    """)


def test_programs_send_nothing_either(unchanged, listener):
    port, came = listener
    ran = unchanged(
        """
        import subprocess
        code = f"import socket; socket.create_connection(('127.0.0.1', {sys.argv[1]}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode and "Network is unreachable" in done.stderr
        assert subprocess.run([sys.executable, "-c", code], env={}, capture_output=True).returncode
        print([kind for kind, _ in told()])
        """,
        str(port),
    )
    assert came == []
    assert ran.out.strip() == repr(["RAN", "NOT_CONNECTED"] * 2)
