"""A model hub on loopback for the tests: the paths of Hugging Face's hub, and everything that can
go wrong with them.

A repository is a dict of file names and bytes. Files that end in .safetensors are "large": their
download is a redirect to a second server (another port, so another origin), as it is with the
hub's storage. Every request is kept in `log` as (server, method, path, headers).
"""

import hashlib
import http.server
import json
import threading
import urllib.parse


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    def __init__(self, files, revisions=("main",)):
        self.files = dict(files)
        self.commit = hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()
        self.revisions = set(revisions) | {self.commit}
        self.gated = False
        self.token = None  # needed when set

    def is_large(self, name):
        return name.endswith(".safetensors")

    def etag(self, name):
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if self.is_large(name) else git_sha1(data)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), str(value))
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status, code):
        self.answer(status, b"no", X_Error_Code=code, X_Error_Message="no")

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        with hub.lock:
            hub.log.append((self.server.name, self.command, self.path, dict(self.headers)))
            said = next((a for a in hub.answers if a[0] == self.command and a[1] in self.path),
                        None)
            if said:
                hub.answers.remove(said)
        if said:
            return self.answer(said[2], *said[4:], **said[3])
        path = urllib.parse.urlsplit(self.path).path
        if self.server.name == "storage":
            self.storage(hub, path)
        else:
            self.hub(hub, [urllib.parse.unquote(part) for part in path.strip("/").split("/")])

    # The hub itself -------------------------------------------------------------------------------

    def hub(self, hub, parts):
        if hub.status:
            return self.answer(hub.status)
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            return self.api(hub, "/".join(parts[2:4]), parts[4:])
        if len(parts) >= 5 and parts[2] == "resolve":
            return self.resolve(hub, "/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        return self.fail(404, "")

    def repository(self, hub, name, revision):
        repo = hub.repos.get(name)
        if repo is None or (repo.token and self.headers["Authorization"] != f"Bearer {repo.token}"
                            and not repo.gated):
            self.fail(401, "RepoNotFound")
            return None
        if revision not in repo.revisions:
            self.fail(404, "RevisionNotFound")
            return None
        return repo

    def api(self, hub, name, rest):
        if name in hub.moved:
            path = "/".join(["/api/models", hub.moved[name]] +
                            [urllib.parse.quote(part, safe="") for part in rest])
            return self.answer(307, Location=path)
        revision = rest[1] if rest[:1] == ["revision"] else "main"
        if rest[:1] == ["tree"]:
            return self.tree(hub, name, rest[1])
        repo = self.repository(hub, name, revision)
        if repo is None:
            return None
        sha = hub.lies.get("sha", repo.commit)
        files = [{"rfilename": f, "size": len(d)} for f, d in repo.files.items()]
        body = {"id": name, "modelId": name, "sha": sha, "siblings": files, "private": False,
                "gated": repo.gated, "tags": [], "downloads": 0, "likes": 0}
        return self.answer(200, json.dumps(body).encode(), Content_Type="application/json")

    def tree(self, hub, name, revision):
        repo = self.repository(hub, name, revision)
        if repo is None:
            return None
        items = []
        for file, data in repo.files.items():
            item = {"type": "file", "path": file, "size": len(data), "oid": git_sha1(data)}
            if repo.is_large(file):
                item["lfs"] = {"oid": repo.etag(file), "size": len(data), "pointerSize": 100}
            items.append(item)
        return self.answer(200, json.dumps(items).encode(), Content_Type="application/json")

    def resolve(self, hub, name, revision, file):
        if name in hub.moved:
            path = "/".join(["", hub.moved[name], "resolve", revision, urllib.parse.quote(file)])
            return self.answer(307, Location=path)
        repo = self.repository(hub, name, revision)
        if repo is None:
            return None
        if repo.gated and self.headers["Authorization"] != f"Bearer {repo.token}":
            return self.fail(403, "GatedRepo")
        if file not in repo.files:
            return self.fail(404, "EntryNotFound")
        data = repo.files[file]
        etag = hub.lies.get(file, repo.etag(file))
        if not repo.is_large(file) and hub.no_sizes:
            return self.chunks(data, etag, repo.commit)
        if not repo.is_large(file):
            return self.answer(200, data, ETag=f'"{etag}"', X_Repo_Commit=repo.commit)
        location = hub.redirect or f"{hub.storage_url}/{urllib.parse.quote(name)}/{file}?signed=1"
        return self.answer(302, Location=location, X_Linked_Etag=f'"{etag}"',
                           X_Linked_Size=hub.lies.get("size", len(data)),
                           X_Repo_Commit=repo.commit, ETag='"of-the-redirect"')

    def chunks(self, data, etag, commit):
        """An answer that does not say how long it is."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("ETag", f'W/"{etag}"')
        self.send_header("X-Repo-Commit", commit)
        self.end_headers()
        if self.command != "HEAD":
            for at in range(0, len(data), 1000):
                part = data[at:at + 1000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

    # The storage behind it ------------------------------------------------------------------------

    def storage(self, hub, path):
        org, name, file = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        data = hub.repos[f"{org}/{name}"].files[file]
        if hub.corrupt == file:
            data = bytes([data[0] ^ 1]) + data[1:]
        start = 0
        wanted = self.headers["Range"]
        if wanted and hub.ranges:
            start = int(wanted.removeprefix("bytes=").split("-")[0])
            if start >= len(data):
                return self.answer(416, Content_Range=f"bytes */{len(data)}")
        with hub.lock:
            tear, hub.tears = hub.tears[:1], hub.tears[1:]
        end = len(data) if not tear else min(len(data), start + tear[0])
        self.send_response(206 if wanted and hub.ranges else 200)
        if wanted and hub.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        if self.command == "HEAD":
            return None
        for at in range(start, end, 1 << 16):
            self.wfile.write(data[at:min(end, at + (1 << 16))])
            hub.slow.wait(hub.pause)
        if end < len(data):
            self.wfile.flush()
            if hub.stall:
                hub.slow.wait(10)
            self.close_connection = True
            self.connection.close()
        return None


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # torn connections are what these tests are about


class Hub:
    """with Hub() as hub: hub.repos["org/name"] = Repository({...})"""

    def __init__(self):
        self.lock = threading.Lock()
        self.repos = {}
        self.moved = {}  # old name -> new name
        self.lies = {}  # "sha", "size" or a file's name -> what is said of it
        self.answers = []  # (method, word of the path, status, headers[, body]): once each, first
        self.tears = []  # bytes after which the next downloads break off
        self.log = []
        self.status = 0  # answered to everything, 0 = as it is
        self.corrupt = None  # the file that comes with one bit wrong
        self.redirect = None
        self.ranges = True  # the storage understands Range
        self.no_sizes = False  # small files come in chunks, without a length
        self.stall = False  # a torn download hangs instead
        self.pause = 0  # seconds between two pieces
        self.slow = threading.Event()

    def serve(self, name):
        server = Server(("127.0.0.1", 0), Handler)
        server.hub, server.name = self, name
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        self.servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    def __enter__(self):
        self.servers = []
        self.url = self.serve("hub")
        self.storage_url = self.serve("storage")
        return self

    def __exit__(self, *_):
        self.slow.set()
        for server, thread in self.servers:
            server.shutdown()
            thread.join()
            server.server_close()

    def requests(self, server=None, method=None, word=""):
        with self.lock:
            return [r for r in self.log if (server is None or r[0] == server)
                    and (method is None or r[1] == method) and word in r[2]]
