#!/usr/bin/env bash
# Makes what is shipped, into DIST=dist: tools/dist.sh [PART...], all of them without a name.
#
#   binary     the static program (musl), for each of ARCHES="x86_64 aarch64": bin/margay-ARCH
#   packages   .tar.gz, .deb and .rpm of each
#   image      a container image from scratch of each, as an archive for `docker load` or `podman load`
#   chart      the Helm chart
#   sbom       a list of all that is inside (CycloneDX), and the licences of it
#   checksums  SHA256SUMS over all files
#
# What it needs is installed by `tools/prepare.sh dist`. The same source gives the same files, byte for byte, with the same
# tools: times are the commit's. DIST_VERSION gives the packages another version, for the test of an upgrade.
set -euo pipefail
cd "$(dirname "$0")/.."

dist=$(realpath -m "${DIST:-dist}")
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
read -ra arches <<<"${ARCHES:-x86_64 aarch64}"
version=${DIST_VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n1)}
SOURCE_DATE_EPOCH=$(tools/commit.sh --seconds)
export SOURCE_DATE_EPOCH
# Times, owners and modes do not depend on who makes it.
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf 'dist: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
needs() { command -v "$1" >/dev/null 2>&1 || fail "$1 is missing: tools/prepare.sh dist installs it"; }
deb_arch() { case $1 in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) fail "no name of $1 for Debian" ;; esac; }

# The static programs, in one call: both are linked at the same time. rust-lld and the C library come with Rust's target; only C
# sources (ring, mimalloc, ours) need a compiler that knows the other machine, and that is zig.
binary() {
    local arch triple name folder=$target/dist-build words=() settings=()
    zig=$(zig_command) || fail "zig is missing: tools/prepare.sh dist installs it"
    mkdir -p "$folder" "$dist/bin"
    printf '#!/usr/bin/env bash\nexec %s ar "$@"\n' "$zig" >"$folder/ar"
    for arch in "${arches[@]}"; do
        triple=$arch-unknown-linux-musl name=${arch}_unknown_linux_musl
        rustup target list --installed | grep -qx "$triple" || fail "rustup target add $triple"
        # cc would pass Rust's name of the target, which zig does not know.
        cat >"$folder/cc-$arch" <<END
#!/usr/bin/env bash
words=()
for word; do case \$word in --target=*) ;; *) words+=("\$word") ;; esac; done
exec $zig cc -target $arch-linux-musl -fno-sanitize=undefined "\${words[@]}"
END
        chmod +x "$folder/cc-$arch" "$folder/ar"
        c_library "$arch" "$folder"
        # The same words on every machine; only one copy of functions that are the same (--icf), short relocations, the C library
        # with our memcpy and memcmp, and a list of what is how big. Cargo forgets the profile's `strip` for a package that has an opt-level
        # of its own, as the binary has.
        settings+=("CC_$name=$folder/cc-$arch" "AR_$name=$folder/ar" "CARGO_TARGET_${name^^}_LINKER=rust-lld" "CARGO_TARGET_${name^^}_RUSTFLAGS=-C strip=symbols -C link-arg=--icf=all \
-C link-arg=--pack-dyn-relocs=relr -L native=$folder/libc-$arch -C link-arg=-Map=$folder/margay-$arch.map \
--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo")
        words+=(--target "$triple")
    done
    env "${settings[@]}" "MARGAY_BUILD=$(tools/commit.sh)" CARGO_INCREMENTAL=0 \
        cargo build --profile dist --locked --bin margay "${words[@]}"
    for arch in "${arches[@]}"; do
        install -m 755 "$target/$arch-unknown-linux-musl/dist/margay" "$dist/bin/margay-$arch"
        say "bin/margay-$arch has $(stat -c %s "$dist/bin/margay-$arch") bytes"
    done
}

# Rust's copy of musl with the functions of packaging/musl/memory.c in place of its own: c_library ARCH FOLDER. As a further
# object they would be defined twice, since the linker has taken those of the library before it comes to objects of ours.
c_library() {
    local arch=$1 folder=$2 library=$2/libc-$1/libc.a replaced=(memcmp.lo bcmp.lo memmove.lo)
    if [ "$arch" = x86_64 ]; then replaced+=(memcpy.lo memset.lo); fi
    mkdir -p "$folder/libc-$arch"
    cp "$(rustc --print sysroot)/lib/rustlib/$arch-unknown-linux-musl/lib/self-contained/libc.a" "$library"
    "$folder/cc-$arch" -O2 -g0 -ffreestanding -fno-builtin -fomit-frame-pointer -c packaging/musl/memory.c -o "$folder/memory-$arch.o"
    "$folder/ar" d "$library" "${replaced[@]}"
    "$folder/ar" r "$library" "$folder/memory-$arch.o"
}

zig_command() {
    if command -v zig >/dev/null 2>&1; then echo zig
    elif "$target/dist-tools/bin/python" -m ziglang version >/dev/null 2>&1; then echo "$target/dist-tools/bin/python -m ziglang"
    else return 1
    fi
}

# A program of this machine, to write completions and pages.
own_program() {
    local own=$dist/bin/margay-$(uname -m)
    if [ -x "$own" ]; then echo "$own"; else fail "bin/margay-$(uname -m) is not there: tools/dist.sh binary"; fi
}

# The tree of files that packages install: stage ARCH DIRECTORY.
stage() {
    local arch=$1 root=$2 own
    own=$(own_program)
    install -D -m 755 "$dist/bin/margay-$arch" "$root/usr/bin/margay"
    # mount(8) looks for its helpers only there.
    install -d "$root/usr/sbin" && ln -s ../bin/margay "$root/usr/sbin/mount.margay"
    install -D -m 644 packaging/margay.service "$root/usr/lib/systemd/system/margay.service"
    install -D -m 640 packaging/margay.toml "$root/etc/margay/margay.toml"
    install -d "$root/usr/share/"{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d,man/man1,doc/margay/examples}
    "$own" completions bash >"$root/usr/share/bash-completion/completions/margay"
    "$own" completions zsh >"$root/usr/share/zsh/site-functions/_margay"
    "$own" completions fish >"$root/usr/share/fish/vendor_completions.d/margay.fish"
    "$own" man-pages "$root/usr/share/man/man1"
    gzip -n9 "$root"/usr/share/man/man1/*.1
    install -m 644 LICENSE "$root/usr/share/doc/margay/copyright"
    install -m 644 README.md CHANGELOG.md "$root/usr/share/doc/margay/"
    tools/sbom.py notices >"$root/usr/share/doc/margay/THIRD-PARTY"
    gzip -n9 "$root/usr/share/doc/margay/"{CHANGELOG.md,THIRD-PARTY}
    install -m 644 packaging/mnt-photos.mount "$root/usr/share/doc/margay/examples/"
    find "$root" -type d -exec chmod 755 {} +
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

packages() {
    local arch=$1 root=$work/stage-$1 deb
    needs dpkg-deb
    needs rpmbuild
    mkdir -p "$root"
    stage "$arch" "$root"

    tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --directory="$root" \
        --transform="s,^\.,margay-$version-$arch," . | gzip -n9 >"$dist/margay-$version-linux-$arch.tar.gz"

    rpmbuild -bb --quiet --target "$arch-linux" --define "_topdir $work/rpm" --define "margay_version $version" --define "stage $root" \
        --define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
        --define "_binary_payload w9.gzdio" --define "_rpmdir $dist" --define "_rpmfilename margay-$version-1.$arch.rpm" packaging/margay.spec 2>"$work/rpm.err" ||
        { cat "$work/rpm.err" >&2; fail "rpmbuild failed"; }

    deb=$(deb_arch "$arch")
    mkdir "$root/DEBIAN"
    install -m 755 packaging/deb/* "$root/DEBIAN/"
    echo /etc/margay/margay.toml >"$root/DEBIAN/conffiles"
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | LC_ALL=C sort | xargs md5sum >DEBIAN/md5sums)
    cat >"$root/DEBIAN/control" <<END
Package: margay
Version: $version-1
Architecture: $deb
Maintainer: The authors of margay <margay@localhost>
Installed-Size: $(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)
Depends: passwd, init-system-helpers
Section: net
Priority: optional
Description: object store and file system at the same time
 One program that is an S3 object store and a POSIX file system over
 the same tree.
END
    find "$root/DEBIAN" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --build --root-owner-group -Zxz "$root" "$dist/margay_$version-1_$deb.deb" >/dev/null
    say "packages of $arch are made"
}

# From scratch: the program, the lists of users that it may look for, and the authorities of this machine for https.
image() {
    local arch=$1 deb container root=$work/image-$1 archive
    needs buildah
    deb=$(deb_arch "$arch")
    archive=$dist/margay-$version-image-$deb.tar
    install -D -m 755 "$dist/bin/margay-$arch" "$root/usr/bin/margay"
    install -d "$root/etc/ssl/certs" "$root/data" "$root/mnt"
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    printf 'root:x:0:0:root:/data:/usr/bin/margay\nmargay:x:10001:10001:margay:/data:/usr/bin/margay\n' >"$root/etc/passwd"
    printf 'root:x:0:\nmargay:x:10001:\n' >"$root/etc/group"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

    local buildah=(buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run")
    container=$("${buildah[@]}" from --arch "$deb" scratch)
    "${buildah[@]}" copy --quiet "$container" "$root" / >/dev/null
    "${buildah[@]}" config --arch "$deb" --os linux --entrypoint '["/usr/bin/margay"]' --cmd serve --workingdir /data \
        --env PATH=/usr/bin --env MARGAY_DATA=/data --env MARGAY_ADDRESS=0.0.0.0:9000 --env MARGAY_ADMIN_ADDRESS=0.0.0.0:9001 \
        --port 9000 --port 9001 --volume /data --stop-signal SIGTERM \
        --label org.opencontainers.image.title=margay --label "org.opencontainers.image.version=$version" \
        --label org.opencontainers.image.licenses=Apache-2.0 --label "org.opencontainers.image.revision=$(tools/commit.sh | cut -d, -f1)" \
        "$container"
    # Only Docker's format of images has a health check; the warning is about the other one.
    "${buildah[@]}" config --healthcheck 'CMD /usr/bin/margay health' --healthcheck-interval 10s --healthcheck-timeout 6s \
        --healthcheck-start-period 30s "$container" 2>/dev/null
    rm -f "$archive"
    "${buildah[@]}" commit --quiet --format docker --timestamp "$SOURCE_DATE_EPOCH" --rm "$container" "docker-archive:$archive:margay:$version" >/dev/null
    say "the image for $deb is made"
}

chart() {
    local root=$work/chart
    needs helm
    cp -r packaging/helm "$root"
    helm lint --strict "$root" >&2
    helm package "$root" --version "$version" --app-version "$version" --destination "$dist" >&2
}

sbom() {
    tools/sbom.py sbom "$version" "${arches[@]}" >"$dist/margay-$version.cdx.json"
    tools/sbom.py notices >"$dist/THIRD-PARTY"
}

checksums() {
    (cd "$dist" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
    say "$dist has:"
    (cd "$dist" && find . -type f -printf '%s %P\n' | LC_ALL=C sort -k2 | column -t) >&2
}

if [ $# = 0 ]; then set -- binary packages image chart sbom checksums; fi
mkdir -p "$dist"
for part; do
    case $part in
        packages | image) for arch in "${arches[@]}"; do "$part" "$arch"; done ;;
        binary | chart | sbom | checksums) "$part" ;;
        *) fail "no part $part; there are: binary packages image chart sbom checksums" ;;
    esac
done
