# What `make help` prints is the way in. Needs Go, make and coreutils; a C compiler adds the
# race detector to the tests, git stamps the version.

GO      ?= go
N       ?= 1
SEEDS   ?= 500
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)

# Go wants a place for its caches, also where nobody is at home.
export HOME := $(or $(HOME),$(CURDIR)/.home)

TOOLS    = $(GO) tool -modfile=.ci/tools/go.mod
BUILD    = CGO_ENABLED=0 $(GO) build -buildvcs=false -ldflags '-X main.stamped=$(VERSION)'
PROCTEST = tidal/cmd/tidal/proctest
TESTED   = $(GO) run ./.ci/tested $(GO)

.PHONY: help build demo test check lint bench sim graceful failover controls idle ready gap planned top topcost roll rolltrouble interop rotate clean torn figures release-check nemesis slowclients

help:
	@echo 'make build             bin/tidal'
	@echo 'make demo              three nodes on this machine: write, read, stop, clean up'
	@echo 'make test              all tests; with the race detector if there is a C compiler'
	@echo 'make check             what CI checks besides the tests: lint, vet, modules, builds, release file'
	@echo 'make release-check     have goreleaser check its file'
	@echo 'make sim SEEDS=500     the simulator, from that many seeds'
	@echo 'make graceful N=5      restart three nodes under load, N times, and count what is refused'
	@echo 'make failover N=5      kill and freeze the owner of tables under load, N times: how long they stand still'
	@echo 'make controls N=5      the same with a defect switched on: the test must notice each time'
	@echo 'make ready N=20        nodes that come back to an idle cluster, of each kind N: ready when level, and not before'
	@echo 'make planned N=10      restarts by SIGTERM and in place, of three and five nodes, N times each: the longest waits'
	@echo 'make gap N=5           hand every table of a node over, N times, and measure how long it has no owner'
	@echo 'make pictures          draw the pictures in docs/img anew, from a cluster on this machine'
	@echo 'make top               tidal top on real terminals, in tmux and over a real cluster, with its nodes away for a minute'
	@echo 'make topcost           what tidal top costs with 10,000 tables, itself and the nodes that it asks'
	@echo 'make roll N=10         roll clusters of three and of five nodes under writers, N times each'
	@echo 'make upgrade N=3       roll three and five nodes from one release to the next and back under writers, N times; then there is no way back'
	@echo 'make rolltrouble       operators that die or sleep, nodes that do not come back: minutes'
	@echo 'make slowclients       5,000 connections that send a byte a second: closed, cheap, and nobody else notices'
	@echo 'make nemesis N=10      break processes, networks and disks at random under clients, and check the histories'
	@echo 'make torn              damage at every byte of a small database: each is noticed'
	@echo 'make idle              what 10,000 tables cost that nobody uses: processor and memory'
	@echo 'make rotate N=5        rotate the authority, killing the command and a node in every phase, N times'
	@echo 'make interop           etcd and nats-server on our certificates, etcd and a real sshd under tidal roll; builds and installs them'
	@echo 'make pages             the commands of README.md and of pages in docs, as printed'
	@echo 'make fuzz T=10m        each fuzz target for so long; F=NAME one of them'
	@echo 'make bench             the benchmarks of the packages'
	@echo 'make figures N=3       tidal beside etcd and nats-server on this machine, N rounds; builds both'
	@echo 'make clean             remove what the targets above made'

build:
	$(BUILD) -o bin/tidal ./cmd/tidal

demo: build
	@.ci/demo bin/tidal .demo

# The tests of real processes have a run of their own, since they measure time: the other
# packages must not take the processor from them, nor the race detector. Those that run side by
# side wait most of the time.
test:
	@race=; if .ci/has-cc "$$($(GO) env CC)"; then race=-race; \
	else echo 'no C compiler works here: testing without the race detector'; fi; \
	$(TESTED) $$race -timeout 10m $$($(GO) list -f '{{if ne .ImportPath "$(PROCTEST)"}}{{.ImportPath}}{{end}}' ./...)
	CGO_ENABLED=0 $(TESTED) -timeout 10m -parallel 4 $(PROCTEST)

# Without cgo, as in a release: so everything here shares what is compiled.
check lint: export CGO_ENABLED = 0

check: lint
	$(GO) vet -tags faults ./...
	$(GO) mod tidy -diff
	GOOS=linux GOARCH=amd64 $(GO) build -buildvcs=false ./...
	GOOS=darwin GOARCH=arm64 $(GO) build -buildvcs=false ./...
	@sha256sum --check --quiet --strict .ci/goreleaser.sum || \
		{ echo 'goreleaser.yaml is not as it was last checked: run make release-check'; exit 1; }

# goreleaser takes minutes to build from nothing, and its file seldom changes: what CI looks at
# is whether it is the one that goreleaser accepted.
release-check:
	$(TOOLS) goreleaser check
	sha256sum goreleaser.yaml >.ci/goreleaser.sum

lint:
	$(TOOLS) golangci-lint config verify
	$(TOOLS) golangci-lint run --allow-serial-runners ./...

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: pages fuzz
pages:
	TIDAL_PAGES=1 $(GO) test -count 1 -timeout 5m -run '^TestPages$$' -v ./cmd/tidal

fuzz:
	@.ci/fuzz $(GO) $(or $(T),1m) $(F)

sim: export GOGC = 800
sim:
	TIDAL_SIM_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 60m -v ./node/internal/sim
	TIDAL_FOUND_SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 60m -v -run '^TestFoundOnce$$' ./node/internal/cluster

graceful:
	GRACEFUL_RUNS=$(N) $(GO) test -count=1 -timeout 60m -v -run '^TestGraceful$$' $(PROCTEST)

failover:
	FAILOVER_RUNS=$(N) $(GO) test -count=1 -timeout 60m -v -run '^Test(KillOwner|FreezeOwner|FreezeDisk)$$' $(PROCTEST)

controls:
	TIDAL_CONTROLS=$(N) $(GO) test -count=1 -timeout 120m -v -run '^TestControl' $(PROCTEST)

# As root, for namespaces and file systems of its own.
D ?= 60s
nemesis:
	NEMESIS_RUNS=$(N) NEMESIS_FOR=$(D) $(GO) test -count=1 -timeout 120m -v -run '^TestNemesis$$' $(PROCTEST)

slowclients:
	TIDAL_SLOWCLIENTS=1 $(GO) test -count=1 -timeout 20m -v -run '^TestSlowClients$$' $(PROCTEST)

torn:
	TIDAL_TORN=1 $(GO) test -count=1 -timeout 60m -v -run 'TestTornLog|TestFlippedBits|TestMissingFiles' ./node/internal/store

idle:
	TIDAL_IDLE=1 $(GO) test -count=1 -timeout 20m -v -run '^TestIdle$$' $(PROCTEST)

ready:
	READY_RUNS=$(N) $(GO) test -count=1 -timeout 120m -v -run '^TestReady$$' $(PROCTEST)

# The numbers are worth something on a machine that does nothing else.
planned:
	INPLACE_RUNS=$(N) $(GO) test -count=1 -timeout 120m -v -run '^TestInPlace$$' $(PROCTEST)
	INPLACE_RUNS=$(N) INPLACE_NODES=5 $(GO) test -count=1 -timeout 120m -v -run '^TestInPlace$$' $(PROCTEST)
	GRACEFUL_RUNS=$(N) GRACEFUL_NODES=5 $(GO) test -count=1 -timeout 120m -v -run '^TestGraceful$$' $(PROCTEST)
	GRACEFUL_RUNS=$(N) $(GO) test -count=1 -timeout 120m -v -run '^TestGracefulTwice$$' $(PROCTEST)

gap:
	GAP_RUNS=$(N) $(GO) test -count=1 -timeout 60m -v -run '^TestHandOverGap$$' $(PROCTEST)

.PHONY: pictures
pictures: build
	.ci/pictures bin/tidal .pictures

top:
	TIDAL_TMUX=1 $(GO) test -count=1 -timeout 10m -run '^TestTmuxScreens$$' ./tui
	TIDAL_TOP=60s $(GO) test -count=1 -timeout 20m -v -run '^TestTop($$|Rolls|Leaves|Ends)' $(PROCTEST)

topcost:
	TIDAL_TOP_COST=1 $(GO) test -count=1 -timeout 20m -v -run '^TestTopCost$$' $(PROCTEST)

roll:
	ROLL_RUNS=$(N) $(GO) test -count=1 -timeout 60m -v -run '^TestRoll$$' $(PROCTEST)
	ROLL_RUNS=$(N) ROLL_NODES=5 $(GO) test -count=1 -timeout 60m -v -run '^TestRoll$$' $(PROCTEST)

.PHONY: upgrade
upgrade:
	UPGRADE_RUNS=$(N) $(GO) test -count=1 -timeout 60m -v -run '^TestUpgrade$$' $(PROCTEST)
	UPGRADE_RUNS=$(N) UPGRADE_NODES=5 $(GO) test -count=1 -timeout 90m -v -run '^TestUpgrade$$' $(PROCTEST)

rolltrouble:
	ROLL_OPERATORS=1 ROLL_PAUSES=1 $(GO) test -count=1 -timeout 30m -v -run '^TestRoll(Operators|Pauses|Trouble|Exec)$$' $(PROCTEST)

rotate:
	TIDAL_ROTATE=$(N) $(GO) test -count=1 -timeout 60m -v -run '^TestCertsRotate' $(PROCTEST)

# They are built in modules of their own, so that nothing of them gets into ours. The sshd
# is installed if it is missing: this target skips nothing.
ETCD ?= v3.7.3
NATS ?= v2.15.2
interop: .interop/etcd .interop/etcdctl .interop/nats-server
	.ci/sshd
	TIDAL_INTEROP=$(CURDIR)/.interop $(GO) test -count=1 -timeout 15m -v -run 'TakesOurCertificates$$|^TestRoll(SSH|Etcd|EtcdTooMany)$$' $(PROCTEST)

figures: build .interop/etcd .interop/nats-server
	cd examples/compare && $(GO) run . -rounds $(N) -tidal $(CURDIR)/bin/tidal -etcd $(CURDIR)/.interop/etcd -nats $(CURDIR)/.interop/nats-server

.interop/etcd:
	.ci/foreign go.etcd.io/etcd/server/v3 $(ETCD) . $@

.interop/etcdctl:
	.ci/foreign go.etcd.io/etcd/etcdctl/v3 $(ETCD) . $@

.interop/nats-server:
	.ci/foreign github.com/nats-io/nats-server/v2 $(NATS) . $@

clean:
	rm -rf .interop .pictures bin dist .demo .home
