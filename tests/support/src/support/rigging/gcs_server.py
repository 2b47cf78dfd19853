"""A small, faithful server of the GCS JSON API for tests with gcsfs and google-cloud-storage, over real HTTP.

with GcsServer() as server:
    server.create_bucket("a-bucket", "us-central2")
    os.environ.update(server.environment())

It keeps objects in memory, checks generation preconditions on every write, delete, rewrite, compose and read, and has
buckets in different locations; emulators lack some of this. It refuses unknown requests with 405, which no client
retries. Needs aiohttp and google-crc32c, dependencies of gcsfs.
"""

import itertools
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from support.rigging.gcs_model import Bucket, Conditions, GcsError, StoredObject
from support.rigging.gcs_uploads import ResumableSession, multipart_object
from support.rigging.serving import Answer, Door, Request, TestServer, TrafficCounters, serve

#: How much one call of a rewrite between locations copies, so that clients have to loop as they do on the service.
REWRITE_CALL_BYTES = 32 * 2**20

_BUCKET = re.compile(r"/storage/v1/b/([^/]+)")
_OBJECTS = re.compile(r"(?:/(?:upload|download))?/storage/v1/b/([^/]+)/o")
_OBJECT = re.compile(r"(?:/download)?/storage/v1/b/([^/]+)/o/([^/]+)")
_COMPOSE = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/compose")
_COPY = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/(rewriteTo|copyTo)/b/([^/]+)/o/([^/]+)")
_MOVE = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/moveTo/o/([^/]+)")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class GcsServer(TestServer):
    """The server, in a separate process that ends with this one; a context manager."""

    def __init__(self) -> None:
        super().__init__(__name__)

    def environment(self) -> dict[str, str]:
        """Return the environment in which gcsfs and google-cloud-storage use this server."""
        # Without the last one gcsfs asks a Google service over gRPC about each bucket, for up to a minute.
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "GOOGLE_CLOUD_PROJECT": "test-project",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        }

    def create_bucket(self, name: str, location: str = "us-central1") -> None:
        """Create a bucket in a region, unless it exists."""
        body = json.dumps({"name": name, "location": location}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + "/storage/v1/b", data=body, headers=headers, method="POST")
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise


class GcsApi:
    def __init__(self) -> None:
        self.traffic = TrafficCounters()
        self._buckets: dict[str, Bucket] = {}
        self._sessions: dict[str, ResumableSession] = {}
        self._session_numbers = itertools.count()
        self._rewrites: dict[str, int] = {}

    async def handle(self, request: Request) -> Answer:
        """Answer one request, atomically because it awaits nothing."""
        query = dict(parse_qsl(request.raw_query, keep_blank_values=True))
        try:
            return self._route(request, query)
        except GcsError as error:
            if error.status == 304:
                return Answer(304)
            body = {"code": error.status, "message": error.message, "errors": [{"message": error.message}]}
            return Answer.of_json({"error": body}, error.status)

    def _route(self, request: Request, query: dict[str, str]) -> Answer:
        path = request.raw_path
        if path.rstrip("/") == "/storage/v1/b":
            return self._buckets_call(request)
        if match := _BUCKET.fullmatch(path):
            return self._bucket_call(request, unquote(match[1]))
        if match := _OBJECTS.fullmatch(path):
            bucket = self._bucket(unquote(match[1]))
            if path.startswith("/upload/"):
                return self._upload(request, query, bucket)
            if request.method == "GET":
                return self._list(request, query, bucket)
        if match := _OBJECT.fullmatch(path):
            return self._object_call(request, query, self._bucket(unquote(match[1])), unquote(match[2]))
        if request.method == "POST" and (match := _COMPOSE.fullmatch(path)):
            return self._compose(request, query, self._bucket(unquote(match[1])), unquote(match[2]))
        if request.method == "POST" and (match := _COPY.fullmatch(path)):
            source, name, verb, target, new_name = (unquote(part) for part in match.groups())
            return self._copy(request, query, self._bucket(source), name, self._bucket(target), new_name, verb)
        if request.method == "POST" and (match := _MOVE.fullmatch(path)):
            return self._move(request, query, self._bucket(unquote(match[1])), unquote(match[2]), unquote(match[3]))
        raise GcsError(405, f"This test server does not know {request.method} {path}")

    def _bucket(self, name: str) -> Bucket:
        found = self._buckets.get(name)
        if found is None:
            raise GcsError(404, "The specified bucket does not exist.")
        return found

    def _buckets_call(self, request: Request) -> Answer:
        if request.method == "GET":
            items = [self._buckets[name].resource() for name in sorted(self._buckets)]
            return Answer.of_json({"kind": "storage#buckets", "items": items})
        wanted = _resource(request)
        if wanted["name"] in self._buckets:
            raise GcsError(409, "Your previous request to create the named bucket succeeded and you already own it.")
        bucket = self._buckets[wanted["name"]] = Bucket(wanted["name"], wanted.get("location") or "US")
        return Answer.of_json(bucket.resource())

    def _bucket_call(self, request: Request, name: str) -> Answer:
        bucket = self._bucket(name)
        self.traffic.of(name).requests[f"buckets.{request.method.lower()}"] += 1
        if request.method == "GET":
            return Answer.of_json(bucket.resource())
        if request.method != "DELETE":
            raise GcsError(405, f"This test server does not know {request.method} of buckets")
        if len(bucket):
            raise GcsError(409, "The bucket you tried to delete is not empty.")
        del self._buckets[name]
        return Answer(204)

    def _list(self, request: Request, query: Mapping[str, str], bucket: Bucket) -> Answer:
        self.traffic.of(bucket.name).requests["objects.list"] += 1
        page = bucket.list(query)
        answer: dict[str, Any] = {"kind": "storage#objects"}
        if page.items:
            answer["items"] = [item.resource(bucket.name, request.base_url) for item in page.items]
        if page.prefixes:
            answer["prefixes"] = page.prefixes
        if page.next_page is not None:
            answer["nextPageToken"] = page.next_page
        return Answer.of_json(answer)

    def _object_call(self, request: Request, query: Mapping[str, str], bucket: Bucket, name: str) -> Answer:
        traffic = self.traffic.of(bucket.name)
        conditions = Conditions.from_query(query)
        generation = query.get("generation")
        match request.method:
            case "GET" | "HEAD" if query.get("alt") == "media" or request.raw_path.startswith("/download/"):
                traffic.requests["objects.media"] += 1
                answer = _media(request, bucket.get(name, conditions, generation))
                traffic.bytes_out += len(answer.body)
                return answer
            case "GET":
                traffic.requests["objects.get"] += 1
                return _answer_object(request, bucket, bucket.get(name, conditions, generation))
            case "PATCH" | "PUT":
                traffic.requests["objects.patch"] += 1
                return _answer_object(request, bucket, bucket.patch(name, _resource(request), conditions))
            case "DELETE":
                traffic.requests["objects.delete"] += 1
                bucket.delete(name, conditions, generation)
                return Answer(204)
            case method:
                raise GcsError(405, f"This test server does not know {method} of objects")

    def _upload(self, request: Request, query: dict[str, str], bucket: Bucket) -> Answer:
        traffic = self.traffic.of(bucket.name)
        if "upload_id" in query:
            return self._resume(request, query["upload_id"])
        traffic.requests["objects.insert"] += 1
        conditions = Conditions.from_query(query)
        content_type = request.headers.get("Content-Type", "")
        match query.get("uploadType"):
            case "media":
                traffic.bytes_in += len(request.body)
                stored = bucket.put(query.get("name", ""), request.body, conditions, content_type=content_type)
            case "multipart":
                resource, part = multipart_object(content_type, request.body)
                name = resource.get("name") or query.get("name", "")
                kind = resource.get("contentType") or part.content_type
                traffic.bytes_in += len(part.body)
                metadata = resource.get("metadata")
                stored = bucket.put(name, part.body, conditions, content_type=kind, metadata=metadata)
            case "resumable":
                return self._begin_session(request, query, bucket, conditions)
            case other:
                raise GcsError(400, f"Invalid uploadType: {other!r}")
        return _answer_object(request, bucket, stored)

    def _begin_session(
        self, request: Request, query: Mapping[str, str], bucket: Bucket, conditions: Conditions
    ) -> Answer:
        resource = _resource(request)
        name = resource.get("name") or query.get("name", "")
        conditions.check(bucket.find(name))
        kind = resource.get("contentType") or request.headers.get("X-Upload-Content-Type")
        upload_id = f"{next(self._session_numbers)}-{bucket.name}"
        self._sessions[upload_id] = ResumableSession(bucket.name, name, conditions, resource, kind)
        location = f"{request.base_url}{request.raw_path}?uploadType=resumable&upload_id={upload_id}"
        return Answer(200, headers={"Location": location, "X-GUploader-UploadID": upload_id})

    def _resume(self, request: Request, upload_id: str) -> Answer:
        session = self._sessions.get(upload_id)
        if session is None:
            raise GcsError(404, "No such upload session")
        if request.method == "DELETE":
            del self._sessions[upload_id]
            return Answer(499)
        traffic = self.traffic.of(session.bucket)
        traffic.requests["objects.chunk"] += 1
        traffic.bytes_in += len(request.body)
        if not session.take(request.headers.get("Content-Range"), request.body):
            return Answer(308, headers=session.progress())
        bucket = self._bucket(session.bucket)
        stored = bucket.put(
            session.name,
            session.received,
            session.conditions,
            content_type=session.content_type,
            metadata=session.resource.get("metadata"),
        )
        del self._sessions[upload_id]
        return _answer_object(request, bucket, stored)

    def _compose(self, request: Request, query: Mapping[str, str], bucket: Bucket, name: str) -> Answer:
        self.traffic.of(bucket.name).requests["objects.compose"] += 1
        wanted = _resource(request)
        sources = []
        for source in wanted.get("sourceObjects", ()):
            expected = source.get("objectPreconditions", {}).get("ifGenerationMatch", source.get("generation"))
            sources.append((source["name"], None if expected is None else int(expected)))
        stored = bucket.compose(name, sources, Conditions.from_query(query), wanted.get("destination") or {})
        return _answer_object(request, bucket, stored)

    def _copy(
        self,
        request: Request,
        query: Mapping[str, str],
        bucket: Bucket,
        name: str,
        target: Bucket,
        new_name: str,
        verb: str,
    ) -> Answer:
        self.traffic.of(target.name).requests["objects.rewrite" if verb == "rewriteTo" else "objects.copy"] += 1
        source = bucket.get(name, Conditions.from_query(query, "Source"), query.get("sourceGeneration"))
        size = len(source.body)
        if verb == "rewriteTo" and bucket.location != target.location:
            token = query.get("rewriteToken") or f"rw-{len(self._rewrites)}-{source.generation}"
            limit = int(query.get("maxBytesRewrittenPerCall") or REWRITE_CALL_BYTES)
            copied = self._rewrites[token] = min(size, self._rewrites.get(token, 0) + limit)
            if copied < size:
                Conditions.from_query(query).check(target.find(new_name))
                return Answer.of_json({**_rewritten(copied, size, done=False), "rewriteToken": token})
            del self._rewrites[token]
        stored = target.copy_in(source, new_name, Conditions.from_query(query), _resource(request))
        self.traffic.of(target.name).bytes_copied += size
        if verb == "copyTo":
            return _answer_object(request, target, stored)
        resource = stored.resource(target.name, request.base_url)
        return Answer.of_json({**_rewritten(size, size, done=True), "resource": resource})

    def _move(self, request: Request, query: Mapping[str, str], bucket: Bucket, name: str, new_name: str) -> Answer:
        self.traffic.of(bucket.name).requests["objects.move"] += 1
        source = bucket.get(name, Conditions.from_query(query, "Source"), query.get("sourceGeneration"))
        if name == new_name:
            raise GcsError(400, "Source and destination object names must be different.")
        stored = bucket.copy_in(source, new_name, Conditions.from_query(query), {})
        bucket.delete(name, Conditions())
        return _answer_object(request, bucket, stored)


def _resource(request: Request) -> dict[str, Any]:
    try:
        parsed = json.loads(request.body or b"{}")
    except ValueError:
        raise GcsError(400, "Parse Error") from None
    if not isinstance(parsed, dict):
        raise GcsError(400, "Parse Error")
    return parsed


def _rewritten(copied: int, size: int, *, done: bool) -> dict[str, Any]:
    return {
        "kind": "storage#rewriteResponse",
        "totalBytesRewritten": str(copied),
        "objectSize": str(size),
        "done": done,
    }


def _answer_object(request: Request, bucket: Bucket, stored: StoredObject) -> Answer:
    return Answer.of_json(stored.resource(bucket.name, request.base_url))


def _media(request: Request, stored: StoredObject) -> Answer:
    hashes = f"crc32c={stored.crc32c}" + (f",md5={stored.md5}" if stored.md5 else "")
    headers = {
        "Content-Type": stored.content_type, "ETag": stored.etag, "Last-Modified": stored.last_modified,
        "X-Goog-Generation": str(stored.generation), "X-Goog-Metageneration": str(stored.metageneration),
        "X-Goog-Hash": hashes, "X-Goog-Stored-Content-Length": str(len(stored.body)), "Accept-Ranges": "bytes",
    }  # fmt: skip
    size = len(stored.body)
    match = _RANGE.fullmatch(request.headers.get("Range", ""))
    if match is None or match.groups() == ("", ""):
        return Answer(200, stored.body, headers)
    first, last = match.groups()
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last), size - 1) if first and last else size - 1
    if start >= size or end < start:
        raise GcsError(416, f"The requested range cannot be satisfied: {match.group()} of {size} bytes")
    headers["Content-Range"] = f"bytes {start}-{end}/{size}"
    return Answer(206, memoryview(stored.body)[start : end + 1], headers)


if __name__ == "__main__":
    api = GcsApi()
    serve(Door(api.handle, api.traffic))
