"""An identity provider for the cases of s3-tests that want one: provider.py PORT CONF

Serves what an OpenID Connect provider publishes (its description and its public key) under the issuer that the cases name,
http://localhost:PORT/auth/realms/demo, and writes the section [webidentity] with two tokens of it to the file CONF once it
listens. The key is made anew each time and never leaves the process. Ends with a signal.
"""

import base64
import hashlib
import http.server
import json
import os
import sys
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

REALM = "demo"
AUDIENCE = "account"
CLIENT = "s3-tests"
LIFETIME_SECONDS = 6 * 3600
KID = "s3-tests"


def text_of(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def text_of_number(number):
    return text_of(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def token(key, issuer, subject, more):
    now = int(time.time())
    claims = {
        "iss": issuer,
        "sub": subject,
        "aud": AUDIENCE,
        "azp": CLIENT,
        # The cases name the audience so in their conditions.
        "app_id": AUDIENCE,
        "iat": now,
        "exp": now + LIFETIME_SECONDS,
        **more,
    }
    header = {"alg": "RS256", "typ": "JWT", "kid": KID}
    signed = ".".join(text_of(json.dumps(part).encode("utf-8")) for part in (header, claims))
    return signed + "." + text_of(key.sign(signed.encode("ascii"), padding.PKCS1v15(), hashes.SHA256()))


def main():
    port, conf = int(sys.argv[1]), sys.argv[2]
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    numbers = key.public_key().public_numbers()
    path = f"/auth/realms/{REALM}"
    issuer = f"http://localhost:{port}{path}"
    modulus = text_of_number(numbers.n)
    public = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KID, "n": modulus, "e": text_of_number(numbers.e)}
    documents = {
        path + "/.well-known/openid-configuration": {"issuer": issuer, "jwks_uri": issuer + "/certs"},
        path + "/certs": {"keys": [public]},
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            document = documents.get(self.path)
            body = json.dumps(document or {"error": "not found"}).encode("utf-8")
            self.send_response(200 if document else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    subject = "service-account"
    tags = {"https://aws.amazon.com/tags": {"principal_tags": {"Department": ["Engineering", "Marketing"]}}}
    section = {
        "token": token(key, issuer, subject, {}),
        "aud": AUDIENCE,
        "sub": subject,
        "azp": CLIENT,
        "user_token": token(key, issuer, "user", tags),
        # Of no certificate: there is none without TLS, but its form is asked for.
        "thumbprint": hashlib.sha1(modulus.encode("ascii")).hexdigest(),
        "KC_REALM": REALM,
    }
    with open(conf + ".new", "w", encoding="utf-8") as file:
        file.write("[webidentity]\n" + "".join(f"{name} = {value}\n" for name, value in section.items()))
    os.replace(conf + ".new", conf)
    server.serve_forever()


if __name__ == "__main__":
    main()
