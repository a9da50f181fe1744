"""Signs S3 requests (V4, unsigned payload) for test programs that use the standard library only."""

import datetime
import hashlib
import hmac


def headers(method, host, path, query="", access="", secret="", region="us-east-1", more=None):
    """The headers of one signed request; `more` are x-amz headers in lower case that it sends, too."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    signed = {"host": host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now, **(more or {})}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    canonical = "\n".join([method, path, query, lines, names, "UNSIGNED-PAYLOAD"])
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, digest])
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    signed["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed
