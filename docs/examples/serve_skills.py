"""Answer the tasks of a bank over HTTP, with the standard library alone.

    python docs/examples/serve_skills.py chat_skills/bank --port 8000

It runs until it is stopped.
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cl_graft as cg


class Skills(BaseHTTPRequestHandler):
    """Answers ``{"task": ..., "messages": [...]}``, or ``text`` for tasks of plain texts.

    Threads may ask the bank at once.
    """

    bank: cg.OpenBank

    def do_POST(self) -> None:
        """Answer one request: 200 with the answer, or 400 with what is wrong."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            asked = json.loads(body)
            given = asked["messages"] if "messages" in asked else asked["text"]
            code, said = 200, self.bank.predict(given, task=asked["task"]).label
        except KeyError as error:
            code, said = 400, f"the request has no {error}; it needs task, and messages or text"
        except (TypeError, ValueError, cg.InputError) as error:
            code, said = 400, f"{type(error).__name__}: {error}"
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps({"answer" if code == 200 else "error": said}).encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("bank")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    Skills.bank = cg.open_bank(options.bank)
    ThreadingHTTPServer(("127.0.0.1", options.port), Skills).serve_forever()
