#!/usr/bin/env bash
# curl --aws-sigv4 against $ENDPOINT; started by run.sh.
. "$(dirname "$0")/checks.sh"

bucket=clients-curl
url=$ENDPOINT/$bucket
# Before 8.0 curl signs S3 requests without saying how the payload is covered, which S3 refuses for bodies; newer ones
# say it themselves unless they are told.
signed=(--aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY")
unsigned=(-H 'x-amz-content-sha256: UNSIGNED-PAYLOAD')
send() { curl -sS --fail-with-body "${signed[@]}" "${unsigned[@]}" "$@"; }
plain() { curl -sS --fail-with-body "${signed[@]}" "$@"; }
status() { curl -sS -o "$WORK/body" -w '%{http_code}' "${signed[@]}" "$@"; }

put_and_get() {
    send -T "$FILES/$1" "$url/$1"
    plain -o "$WORK/back" "$url/$1"
    cmp "$FILES/$1" "$WORK/back"
}

payload_signed() {
    local digest
    digest=$(sha256sum <"$FILES/100k" | cut -d ' ' -f 1)
    plain -H "x-amz-content-sha256: $digest" -T "$FILES/100k" "$url/signed"
    plain -o "$WORK/back" "$url/signed"
    cmp "$FILES/100k" "$WORK/back"
    same "$(status -H "x-amz-content-sha256: $digest" -T "$FILES/hello" "$url/signed")" 400
    grep -q '<Code>XAmzContentSHA256Mismatch</Code>' "$WORK/body"
    plain -o "$WORK/back" "$url/signed"
    cmp "$FILES/100k" "$WORK/back"
}

data_binary() {
    send -X PUT --data-binary 'inline body' "$url/inline"
    same "$(plain "$url/inline")" 'inline body'
}

escaped_key() {
    send -X PUT --data-binary 'odd' "$url/with%20space%2Bplus%25"
    same "$(plain "$url/with%20space%2Bplus%25")" odd
    plain "$url?prefix=with" | grep -q '<Key>with space+plus%</Key>'
}

listing() {
    plain "$url" | grep -q '<Key>inline</Key>'
    plain "$url?list-type=2&max-keys=2" | grep -q '<IsTruncated>true</IsTruncated>'
    plain "$url?list-type=2&max-keys=2" | grep -q '<NextContinuationToken>'
}

headers() {
    send -X PUT -H 'Content-Type: text/x-margay' -H 'x-amz-meta-colour: green' --data-binary 'm' "$url/meta"
    plain -I "$url/meta" | tr -d '\r' >"$WORK/head"
    grep -qi '^content-type: text/x-margay$' "$WORK/head"
    grep -qi '^x-amz-meta-colour: green$' "$WORK/head"
    grep -qi '^content-length: 1$' "$WORK/head"
    grep -qi '^etag: "' "$WORK/head"
}

ranged_get() {
    plain -r 6-9 "$url/inline" >"$WORK/back"
    same "$(cat "$WORK/back")" ' bod'
    same "$(status -r 6-9 "$url/inline")" 206
    same "$(status -r 100- "$url/inline")" 416
}

not_modified() {
    local etag
    etag=$(plain -I "$url/inline" | tr -d '\r' | sed -n 's/^[eE][tT][aA][gG]: //p')
    same "$(status -H "If-None-Match: $etag" "$url/inline")" 304
    same "$(status -H 'If-Match: "0"' "$url/inline")" 412
}

errors() {
    same "$(status "$url/nothing")" 404 && grep -q '<Code>NoSuchKey</Code>' "$WORK/body"
    same "$(status "$url-none/x")" 404 && grep -q '<Code>NoSuchBucket</Code>' "$WORK/body"
    same "$(status -X DELETE "$url")" 409 && grep -q '<Code>BucketNotEmpty</Code>' "$WORK/body"
    same "$(curl -sS -o "$WORK/body" -w '%{http_code}' "$url/inline")" 403 && grep -q '<Code>AccessDenied</Code>' "$WORK/body"
    same "$(curl -sS -o "$WORK/body" -w '%{http_code}' --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:wrong" "$url/inline")" 403
    grep -q '<Code>SignatureDoesNotMatch</Code>' "$WORK/body"
}

# visit PATH: the status of a visit to the bucket's website, and where it leads; its page is in $WORK/body.
visit() {
    local host=$bucket.$WEBSITE:${HOST#*:}
    curl -sS --resolve "$host:${HOST%:*}" -o "$WORK/body" -w '%{http_code} %{redirect_url}' "http://$host/$1"
}

website() {
    local rule='<Condition><HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals></Condition><Redirect><ReplaceKeyPrefixWith>new/</ReplaceKeyPrefixWith></Redirect>'
    local index='<IndexDocument><Suffix>index.html</Suffix></IndexDocument>'
    local policy='{"Statement": {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::BUCKET", "arn:aws:s3:::BUCKET/*"]}}'
    same "$(visit '')" '404 ' && grep -q 'Code: NoSuchWebsiteConfiguration' "$WORK/body"
    send -X PUT -H 'Content-Type: text/html' --data-binary '<h1>home</h1>' "$url/index.html"
    send -X PUT -H 'Content-Type: text/html' --data-binary '<h1>docs</h1>' "$url/docs/index.html"
    send -X PUT --data-binary "<WebsiteConfiguration>$index<ErrorDocument><Key>hello</Key></ErrorDocument></WebsiteConfiguration>" "$url?website"
    same "$(visit '')" '403 ' && grep -q 'Code: AccessDenied' "$WORK/body"
    send -X PUT --data-binary "${policy//BUCKET/$bucket}" "$url?policy"
    same "$(visit '')" '200 ' && same "$(cat "$WORK/body")" '<h1>home</h1>'
    same "$(visit docs/)" '200 ' && same "$(cat "$WORK/body")" '<h1>docs</h1>'
    same "$(visit docs)" "302 http://$bucket.$WEBSITE:${HOST#*:}/docs/"
    same "$(visit nothing)" '404 ' && cmp "$FILES/hello" "$WORK/body"
    send -X PUT --data-binary "<WebsiteConfiguration>$index<RoutingRules><RoutingRule>$rule</RoutingRule></RoutingRules></WebsiteConfiguration>" "$url?website"
    same "$(visit nothing)" "301 http://$bucket.$WEBSITE:${HOST#*:}/new/nothing"
    send -X PUT --data-binary '<WebsiteConfiguration><RedirectAllRequestsTo><HostName>example.com</HostName></RedirectAllRequestsTo></WebsiteConfiguration>' "$url?website"
    same "$(visit docs/)" '301 http://example.com/docs/'
    plain -X DELETE "$url/index.html"
    plain -X DELETE "$url/docs/index.html"
}

removal() {
    local key
    for key in empty one 100k hello inline meta signed with%20space%2Bplus%25; do
        plain -X DELETE "$url/$key"
    done
    plain -X DELETE "$url"
    same "$(status "$url")" 404
}

check 'make bucket' plain -X PUT "$url"
check 'list buckets' bash -c "$(declare -p signed); curl -sS --fail-with-body \"\${signed[@]}\" '$ENDPOINT/' | grep -q '<Name>$bucket</Name>'"
check 'put and get 0 bytes' put_and_get empty
check 'put and get 1 byte' put_and_get one
check 'put and get 100 KiB' put_and_get 100k
check 'put and get text' put_and_get hello
check 'payload signed, and not as signed' payload_signed
check 'put --data-binary' data_binary
check 'escaped key' escaped_key
check 'list' listing
check 'headers' headers
check 'ranged get' ranged_get
check 'conditional get' not_modified
check 'error codes' errors
[ -z "${WEBSITE:-}" ] || check 'website' website
check 'delete all, remove bucket' removal
finish
