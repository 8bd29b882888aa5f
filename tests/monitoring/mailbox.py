"""A mail server on loopback that keeps what it gets: enough of SMTP for Alertmanager, without TLS."""

import base64
import email
import email.policy
import socketserver
from email.message import EmailMessage

from tests.monitoring.webhook import Listener


class Mailbox(Listener):
    """The mails that came, and the passwords that were given."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.passwords: list[str] = []
        mails, passwords = self.mails, self.passwords

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 mailbox\r\n")
                while line := self.rfile.readline():
                    command, _, rest = line.decode().strip().partition(" ")
                    match command.upper():
                        case "EHLO":
                            self.wfile.write(b"250-mailbox\r\n250 AUTH PLAIN\r\n")
                        case "AUTH":
                            passwords.append(base64.b64decode(rest.split()[1]).decode().rpartition("\0")[2])
                            self.wfile.write(b"235 ok\r\n")
                        case "DATA":
                            self.wfile.write(b"354 go on\r\n")
                            text = b"".join(iter(self.rfile.readline, b".\r\n"))
                            mails.append(email.message_from_bytes(text, policy=email.policy.default))
                            self.wfile.write(b"250 ok\r\n")
                        case "QUIT":
                            self.wfile.write(b"221 bye\r\n")
                            return
                        case _:
                            self.wfile.write(b"250 ok\r\n")

        super().__init__(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))
