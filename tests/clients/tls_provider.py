"""An identity provider over https, whose certificate an authority of its own signed: tls_provider.py MARGAY FOLDER

FOLDER has ca.pem, other.pem (another authority), server.pem and server.key. For each of both authorities a server of its own is told to believe
it (`oidc.ca`): with the right one a token of the provider opens a role, with the other one the provider's keys are not to be had.
Started by tls.sh; prints what it found, and ends with 1 when it is not so.
"""

import base64
import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

MARGAY, FOLDER = sys.argv[1:]


def text_of(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def openssl(*arguments, content=None):
    return subprocess.run(["openssl", *arguments], input=content, capture_output=True, check=True).stdout


class Provider:
    """What an OpenID Connect provider publishes, and tokens that it signs."""

    def __init__(self, folder):
        self.key = os.path.join(folder, "rsa.pem")
        openssl("genrsa", "-out", self.key, "2048")
        modulus = bytes.fromhex(openssl("rsa", "-in", self.key, "-noout", "-modulus").decode().strip().partition("=")[2])
        documents, asked = {}, []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                body = documents[self.path]
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A handshake that is broken off is what one of the servers must do.
        server.handle_error = lambda *_: None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(os.path.join(FOLDER, "server.pem"), os.path.join(FOLDER, "server.key"))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.issuer, self.asked = f"https://localhost:{server.server_port}/realm", asked
        keys = {"keys": [{"kty": "RSA", "use": "sig", "kid": "one", "n": text_of(modulus), "e": "AQAB"}]}
        description = {"issuer": self.issuer, "jwks_uri": self.issuer + "/keys"}
        documents["/realm/.well-known/openid-configuration"] = json.dumps(description).encode()
        documents["/realm/keys"] = json.dumps(keys).encode()
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def token(self):
        claims = {"iss": self.issuer, "aud": "margay", "sub": "ann", "exp": int(time.time()) + 600}
        signed = ".".join(text_of(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "one"}, claims))
        return signed + "." + text_of(openssl("dgst", "-sha256", "-sign", self.key, content=signed.encode()))


def assume(provider, folder, authority):
    """Asks a server that believes this authority for a role; status and body of the answer."""
    data, log = os.path.join(folder, authority), os.path.join(folder, authority + ".log")
    command = [MARGAY, "serve", "--data", data, "--address", "127.0.0.1:0", "--admin-address", "off"]
    settings = {"oidc.issuer": provider.issuer, "oidc.audience": "margay", "oidc.ca": os.path.join(FOLDER, authority)}
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=open(log, "w"), text=True)
    endpoint = None
    try:
        for line in server.stdout:
            if line.strip().startswith("S3 "):
                endpoint = line.split()[1]
                break
        if not endpoint:
            sys.exit(f"the server did not start: {open(log).read()[-2000:]}")
        trust = {"Version": "2012-10-17", "Statement": {
            "Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
            "Principal": {"Federated": "arn:aws:iam::000000000000:oidc-provider/" + provider.issuer.partition("://")[2]}}}
        file = os.path.join(folder, "trust.json")
        with open(file, "w") as out:
            json.dump(trust, out)
        subprocess.run([MARGAY, "role", "create", "people", "--trust", file, "--data", data], check=True, capture_output=True)
        form = {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleSessionName": "ann",
                "RoleArn": "arn:aws:iam::000000000000:role/people", "WebIdentityToken": provider.token()}
        try:
            with urllib.request.urlopen(endpoint, urllib.parse.urlencode(form).encode(), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
    finally:
        server.terminate()
        server.wait()


def main():
    folder = tempfile.mkdtemp(prefix="margay-provider.")
    try:
        provider = Provider(folder)
        status, body = assume(provider, folder, "other.pem")
        if status == 200 or "IDPCommunicationError" not in body or provider.asked:
            sys.exit(f"a provider with a certificate of an unknown authority: {status} {body}")
        status, body = assume(provider, folder, "ca.pem")
        if status != 200 or not re.search("<AccessKeyId>[A-Z0-9]+</AccessKeyId>", body):
            sys.exit(f"a provider with a certificate of the named authority: {status} {body}")
        print(f"asked over https: {', '.join(provider.asked)}")
    finally:
        shutil.rmtree(folder)


main()
