"""Opens connections at a rate, sends a request on each, keeps the last few hundred: `flood.py PORT RATE REQUEST`."""

import collections
import contextlib
import socket
import sys
import time

port, rate, request = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3].encode()
held: collections.deque[socket.socket] = collections.deque()
begun, count = time.monotonic(), 0
while True:
    if count > (time.monotonic() - begun) * rate:
        time.sleep(0.001)
        continue
    connection = socket.socket()
    connection.settimeout(0)
    connection.connect_ex(("127.0.0.1", port))
    with contextlib.suppress(OSError):
        connection.send(request)
    held.append(connection)
    count += 1
    if len(held) > 600:
        held.popleft().close()
