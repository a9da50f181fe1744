# The commands of this repository. On a fresh Debian or Ubuntu `make serve` needs only git and make: it installs
# a compiler when there is none. `make` alone shows this list.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help prepare build serve cluster cluster-kill install dist dist-check test check tidy clients docs reference supply night bench bench-check clean

export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

# Commit and day, for `margay --version`; for all commands alike, or one would build again what another has built.
export MARGAY_BUILD := $(shell tools/commit.sh)

TARGET := $(or $(CARGO_TARGET_DIR),target)
DATA ?= margay-data
ADDRESS ?= 127.0.0.1:9000
MOUNT ?= demo=margay-mnt
PREFIX ?= /usr/local
REPORT ?= margay-report
NIGHT_SECONDS ?= 28800
RIVALS ?= ext4,tmpfs,margay-far,s3fs,rclone,goofys,tigrisfs,juicefs-redis,juicefs-sqlite,s3cmd,minio,garage

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

prepare: ## install what building needs and is missing
	@tools/prepare.sh

build: prepare ## build the release binary
	cargo build --release --locked --bin margay

serve: build ## build, then run a server on DATA=margay-data at ADDRESS=127.0.0.1:9000 with MOUNT=demo=margay-mnt
	@exec $(TARGET)/release/margay serve --data $(DATA) --address $(ADDRESS) $(if $(MOUNT),--mount $(MOUNT)) $(ARGS)

cluster: build ## PostgreSQL and three servers of one volume on this machine, to try; Ctrl-C ends and removes them
	@tools/prepare.sh tests
	@MARGAY_BIN=$(TARGET)/release/margay exec python3 tools/cluster.py serve

cluster-kill: ## kill one server of `make cluster` and show what the others answer
	@python3 tools/cluster.py kill

install: build ## copy the program, its unit, pages and completions to PREFIX=/usr/local
	install -D -m 755 $(TARGET)/release/margay $(DESTDIR)$(PREFIX)/bin/margay
	install -d $(DESTDIR)$(PREFIX)/share/doc/margay
	sed 's|/usr/local|$(PREFIX)|' packaging/mnt-photos.mount >$(DESTDIR)$(PREFIX)/share/doc/margay/mnt-photos.mount
	# mount(8) looks for its helpers only there.
	install -d $(DESTDIR)/sbin && ln -sf $(PREFIX)/bin/margay $(DESTDIR)/sbin/mount.margay
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	sed 's|/usr/bin/|$(PREFIX)/bin/|' packaging/margay.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/margay.service
	test -e $(DESTDIR)/etc/margay/margay.toml || install -D -m 640 packaging/margay.toml $(DESTDIR)/etc/margay/margay.toml
	$(TARGET)/release/margay man-pages $(DESTDIR)$(PREFIX)/share/man/man1
	$(TARGET)/release/margay completions bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/margay

dist: ## all that is shipped, into dist/: static programs, packages, images, chart, contents; PARTS and ARCHES choose
	@tools/prepare.sh dist
	tools/dist.sh $(PARTS)

dist-check: ## what `make dist` made: installed, started and removed, then measured as by bench-check; as root
	@tools/prepare.sh dist
	DIST=dist tests/dist.py
	cargo build --release --locked -p margay-bench --example bare_server
	MARGAY_BIN=$(CURDIR)/dist/bin/margay-$(shell uname -m) python3 tests/goals/slower.py $(ARGS)

test: ## everything that a change must pass; ends with a summary
	@tools/test.sh

check: ## the quick part: format, lints, tests without real clients
	@tools/test.sh format lint test

tidy: ## only the habits that the compiler does not check
	@tools/prepare.sh && cargo test --locked --test tidy

clients: ## only real S3 clients against a real server
	@tools/test.sh clients

docs: ## build the site of docs/ into target/book and check its links; mdBook is fetched when there is none
	@tools/site.sh

reference: ## write docs/reference and docs/s3-operations.md from the code
	MARGAY_WRITE_DOCS=1 cargo test --locked --test reference
	MARGAY_WRITE_DOCS=1 cargo test --locked -p margay-s3 --test operations_table

supply: ## licences and known holes of all libraries
	@tools/supply.sh

night: ## everything that has seeds with new ones, for NIGHT_SECONDS=28800; failures are printed as commands
	@tools/night.sh $(NIGHT_SECONDS)

bench: build ## every benchmark beside every rival that is on PATH, then the tables of the documents and the floors; ARGS=--full: hours
	$(TARGET)/release/margay bench all --rival $(RIVALS) --report $(REPORT) $(ARGS) || [ $$? = 4 ]
	tools/figures.sh $(REPORT)
	$(MAKE) bench-check ARGS=--write

bench-check: build ## what got slower since `make bench`, by ratio to floors measured in the same 3 minutes; ends with 4 then
	# Both packages: the example alone would build every library again, with other features.
	cargo build --release --locked -p margay -p margay-bench --bin margay --example bare_server
	python3 tests/goals/slower.py $(ARGS)

clean: ## remove build results (not the data)
	cargo clean
