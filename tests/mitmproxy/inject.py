"""Does with mitmproxy what the egress role does for the bench: one name is reached at one address, and a credential's
value takes the place of its placeholder in the Authorization header. Answers that stream are not collected."""

import os

HOST, PORT = os.environ["BENCH_UPSTREAM"].rsplit(":", 1)
PLACEHOLDER = os.environ["BENCH_PLACEHOLDER"]
VALUE = os.environ["BENCH_VALUE"]


class Inject:
    def server_connect(self, data):
        data.server.address = (HOST, int(PORT))

    def requestheaders(self, flow):
        held = flow.request.headers.get("authorization", "")
        if PLACEHOLDER in held:
            flow.request.headers["authorization"] = held.replace(PLACEHOLDER, VALUE)

    def responseheaders(self, flow):
        if flow.response.headers.get("content-type") == "text/event-stream":
            flow.response.stream = True


addons = [Inject()]
