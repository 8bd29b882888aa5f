"""Opens connections at a rate, sends a request on each and keeps the last ones: `flood.py PORT RATE REQUEST [KEPT]`."""

import collections
import contextlib
import socket
import sys
import time

port, rate, request = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3].encode()
kept = int(sys.argv[4]) if len(sys.argv) > 4 else 600
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
    if len(held) > kept:
        held.popleft().close()
