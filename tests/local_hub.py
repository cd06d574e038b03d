"""A hub on this machine: as much of the Hugging Face hub as pushing and reading need, over HTTP.

Repositories are kept in memory, as commits (files by path) and branches. Writing needs the token.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Files = dict[str, bytes]


@dataclass
class _Repository:
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: Files) -> str:
        digest = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[digest] = files
        self.branches[branch] = digest
        return digest

    def find(self, revision: str) -> str | None:
        found = self.branches.get(revision, revision)
        return found if found in self.commits else None


@dataclass
class LocalHub:
    """What is kept: repositories by owner and name, which the token may write."""

    token: str
    endpoint: str = ""
    repositories: dict[str, _Repository] = field(default_factory=dict)

    def files(self, repo_id: str, branch: str = "main") -> Files:
        repository = self.repositories[repo_id]
        return repository.commits[repository.branches[branch]]


@contextmanager
def serving(token: str) -> Iterator[LocalHub]:
    """Run a hub for a `with` block."""
    hub = LocalHub(token)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._resolve(body=False)

    def do_GET(self) -> None:
        parts = self._parts()
        if parts[:2] != ["api", "models"]:
            self._resolve(body=True)
            return
        repository = self._repository(parts)
        if repository is None:
            return
        what, revision = parts[4] if len(parts) > 4 else "revision", (*parts, "main")[5]
        found = repository.find(revision)
        if found is None:
            self._refuse(404, "RevisionNotFound")
            return
        files = repository.commits[found]
        if what == "tree":
            rows = [
                {"type": "file", "path": path, "size": len(data), "oid": _oid(data)}
                for path, data in files.items()
            ]
            self._json(rows)
            return
        name = f"{parts[2]}/{parts[3]}"
        siblings = [{"rfilename": path} for path in files]
        self._json({"id": name, "sha": found, "siblings": siblings, "private": False, "tags": []})

    def do_POST(self) -> None:
        parts = self._parts()
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or self._chunks()
        if parts == ["api", "validate-yaml"]:
            self._json({"errors": [], "warnings": []})
            return
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            self._refuse(401, "", "Invalid username or password.")
            return
        if parts == ["api", "repos", "create"]:
            asked = json.loads(data)
            name = f"{asked['organization']}/{asked['name']}"
            known = name in self.hub.repositories
            if not known:
                repository = self.hub.repositories[name] = _Repository()
                repository.commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"})
            answer = json.dumps({"url": f"{self.hub.endpoint}/{name}"})
            self._send(409 if known else 200, answer.encode())
            return
        repository = self._repository(parts)
        if repository is None:
            return
        if parts[4] == "branch":
            repository.branches.setdefault(parts[5], repository.branches["main"])
            self._json({})
        elif parts[4] == "preupload":
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(data)["files"]
            ]
            self._json({"files": files})
        else:
            lines = [json.loads(line) for line in data.splitlines()]
            oid = repository.commit(parts[5], _changed(repository, parts[5], lines))
            url = f"{self.hub.endpoint}/{parts[2]}/{parts[3]}/commit/{oid}"
            self._json({"success": True, "commitOid": oid, "commitUrl": url})

    def _resolve(self, *, body: bool) -> None:
        """Answer /OWNER/NAME/resolve/REVISION/PATH."""
        owner, name, _, revision, *path = self._parts()
        repository = self._repository(["api", "models", owner, name])
        if repository is None:
            return
        found = repository.find(revision)
        data = repository.commits[found].get("/".join(path)) if found else None
        if found is None or data is None:
            self._refuse(404, "EntryNotFound" if found else "RevisionNotFound")
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", found)
        self.send_header("ETag", f'"{_oid(data)}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _parts(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]

    def _repository(self, parts: list[str]) -> _Repository | None:
        repository = self.hub.repositories.get("/".join(parts[2:4]))
        if repository is None:
            self._refuse(404, "RepoNotFound")
        return repository

    def _chunks(self) -> bytes:
        data = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        return data

    def _json(self, answer: object) -> None:
        self._send(200, json.dumps(answer).encode())

    def _refuse(self, status: int, code: str, message: str = "not found") -> None:
        self._send(status, json.dumps({"error": message}).encode(), code)

    def _send(self, status: int, data: bytes, code: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if code:
            self.send_header("X-Error-Code", code)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _changed(repository: _Repository, branch: str, lines: list[dict[str, Any]]) -> Files:
    files = dict(repository.commits[repository.branches[branch]])
    for line in lines:
        value = line["value"]
        if line["key"] == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif line["key"] == "deletedFile":
            del files[value["path"]]
    return files


def _oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
