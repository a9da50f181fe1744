# Installs what run.sh's clients need, which sources this file.
#
# From run.sh: here, target, work, VENV, NODE_MODULES, MC, JARS and CLIENTS_ENDPOINT.

apt_get() {
    [ "$(id -u)" = 0 ] || { echo "installing needs root: apt-get install $*" >&2; return 1; }
    apt_updated=${apt_updated:-$(apt-get -qq update >&2 && echo yes)}
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y "$@" >"$work/apt.log" 2>&1
}
tool() { command -v "$1" >/dev/null || { apt_get "$2" && command -v "$1" >/dev/null; }; }

# python_tools NAME VENV: an environment with what NAME.txt says.
python_tools() {
    local wanted=$here/$1.txt venv=$2
    cmp -s "$wanted" "$venv/requirements.txt" && return 0
    rm -rf "$venv"
    python3 -m venv "$venv" || { apt_get python3-venv && python3 -m venv "$venv"; } || return 1
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" && cp "$wanted" "$venv/requirements.txt"
}

# python_client NAME: what requirements-NAME.txt says, in an environment of its own, as these libraries want different versions of others.
python_client() {
    python_tools "requirements-$1" "$VENV-$1" >"$work/pip.log" 2>&1 || echo "pip cannot install requirements-$1.txt: $(tail -n 1 "$work/pip.log")"
}

# MinIO's client, a program that is only run here; its version and what it is built from are fixed by Go's checksum database.
MC_MODULE=github.com/minio/mc@v0.0.0-20250313080218-cf909e1063a9
mc_tool() {
    local stamp=$target/clients-mc/module
    [ "$(cat "$stamp" 2>/dev/null)" = "$MC_MODULE" ] && [ -x "$MC" ] && return 0
    command -v go >/dev/null || { echo 'no go to build mc with'; return; }
    mkdir -p "$target/clients-mc"
    GOBIN=$target/clients-mc/bin go install "$MC_MODULE" >"$work/mc.log" 2>&1 && echo "$MC_MODULE" >"$stamp" && return 0
    echo "go cannot build $MC_MODULE: $(tail -n 1 "$work/mc.log")"
}

javascript_tool() {
    command -v node >/dev/null && command -v npm >/dev/null || { echo 'no node and npm'; return; }
    cmp -s "$here/javascript/package-lock.json" "$NODE_MODULES/package-lock.json" && return 0
    mkdir -p "$NODE_MODULES"
    cp "$here"/javascript/package*.json "$NODE_MODULES/"
    (cd "$NODE_MODULES" && npm ci --no-audit --no-fund) >"$work/npm.log" 2>&1 && return 0
    rm -f "$NODE_MODULES/package-lock.json"
    echo "npm cannot install the SDK: $(tail -n 1 "$work/npm.log")"
}

# Both programs; what they are built from is fixed by go.sum.
go_tool() {
    command -v go >/dev/null || { echo 'no go to build the clients with'; return; }
    (cd "$here/go" && go build -o "$target/clients-go/" ./aws ./minio) >"$work/go.log" 2>&1 || echo "go cannot build the clients: $(tail -n 1 "$work/go.log")"
}

# A JDK runs the two files as they are; Maven brings 31 MB of jars.
java_tool() {
    tool javac default-jdk-headless || { echo 'no java'; return; }
    tool mvn maven || { echo 'no mvn'; return; }
    cmp -s "$here/java/pom.xml" "$JARS/pom.xml" && return 0
    rm -rf "$JARS"
    mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$JARS" >"$work/mvn.log" 2>&1 &&
        cp "$here/java/pom.xml" "$JARS/" && return 0
    echo "mvn cannot fetch the SDKs: $(grep -m 1 ERROR "$work/mvn.log")"
}

# Debian's Chromium: about 100 MB to fetch, 400 MB on disk.
browser_tool() {
    tool chromium chromium || echo 'no chromium'
}

# Says why a client cannot run here; nothing when it can.
missing() {
    case $1 in
        s3cmd | s3cmd-v2) tool s3cmd s3cmd || echo 'no s3cmd' ;;
        rclone) tool rclone rclone || echo 'no rclone' ;;
        curl) tool curl curl || echo 'no curl' ;;
        restic) tool restic restic || echo 'no restic' ;;
        mc) mc_tool ;;
        browser) browser_tool ;;
        javascript) javascript_tool ;;
        go-*) go_tool ;;
        java | s3a) java_tool ;;
        pyarrow | obstore | deltalake | libcloud) python_client data ;;
        fsspec | fsspec-old) python_client "$1" ;;
        s3fs)
            tool s3fs s3fs || { echo 'no s3fs'; return; }
            tool fusermount3 fuse3 || { echo 'no fusermount3'; return; }
            [ -w /dev/fuse ] || echo '/dev/fuse cannot be opened here'
            ;;
        tls)
            [ -z "${CLIENTS_ENDPOINT:-}" ] || { echo 'the server at CLIENTS_ENDPOINT is not ours'; return; }
            tool openssl openssl || { echo 'no openssl'; return; }
            missing s3cmd
            missing rclone
            ;;
    esac
}
