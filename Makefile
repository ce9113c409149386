# One place for every task. `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

TOOL := go tool -modfile=tools/go.mod
VERSION ?= $(shell scripts/version.sh)
# What a release is built for; what its image is called, and whether to push it (PUSH=1).
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
IMAGE ?= ghcr.io/fermata-io/fermata
PUSH ?=
# Private key that signs a release, none by default; public key that a release is checked with; URI of who builds, for the provenance.
SIGN_KEY ?=
VERIFY_KEY ?=
BUILDER ?=
SOURCE_DATE_EPOCH ?= $(shell scripts/version.sh epoch)
RELEASE = go run -C tools/release .
STAMP = -version '$(VERSION)' -revision '$(shell scripts/version.sh commit)' -epoch '$(SOURCE_DATE_EPOCH)' -platforms '$(PLATFORMS)'
TIMEOUT ?= 20m
# Two packages at a time: each may run its own Redis servers.
PARALLEL ?= 2
# Packages whose tests take longest begin first, so that no core waits for them at the end.
LONG := ./internal/test/acceptance ./internal/node ./internal/test/storetest ./cmd/fermata ./internal/test/observability ./internal/redis/shardlock
# Packages without goroutines (docstest checks that): nothing can race in them, and their
# exhaustive tests take five times as long under the race detector.
PURE := ./internal/core/backoff ./internal/lib/ticks ./internal/core/job ./internal/core/lease ./internal/lib/minheap ./internal/core/sharding ./internal/core/schedule ./internal/lib/roundrobin \
	./internal/lib/mask ./internal/lib/yamldoc ./internal/cli/importer ./internal/test/docstest ./internal/test/archtest
# Tests on the Redis that is embedded in the test itself, of which the race detector would see
# little but an interpreter of Lua, four times as slow. It sees the same code of ours at work
# on a real one.
EMBEDDED := Embedded$$
# Tests of the store that make one call after the other: the suite on further kinds of servers,
# and the long histories. Nothing races in them that does not in the suite on the first kind.
SERIAL := ^(TestSuiteOnCluster|TestSuiteByFunctions|TestEveryGrantedCommandIsUsed|TestEveryInterleaving|TestLostRepliesInRandomHistories)$$
FUZZTIME ?= 10s
DEPTH ?= 7
SEED ?= 1
# How long `make chaos` keeps each fault up, under how many jobs, which trials it runs (a regular
# expression, T01|T18 for instance) and where it writes their figures.
CHAOS_TIME ?= 30s
JOBS ?= 10000
RUN ?=
REPORT ?=
N ?= 20000
KILLS ?= 30
# Connections of `make flood`, as far as the limit of open files allows. Two processors serve
# so many beside the strangers themselves, who run on the same machine.
CONNECTIONS ?= 2000
# Rounds of `make bench`.
ROUNDS ?= 3
# Lives of the simulated cluster that a merge must survive.
LIVES ?= 100

##@ Use

.PHONY: run
run: build ## a one-node cluster on embedded Redis, a worker, sample jobs and a live view
	@exec bin/scheduler dev # not `go run`, which takes a clean stop by Ctrl-C for a failure

.PHONY: build
build: ## build all commands into bin/
	VERSION='$(VERSION)' scripts/build.sh bin

##@ Check

# What gates a merge, in this order: cheap checks first.
GATES := deps verify race lives bench-check release-check vuln

.PHONY: test
test: ## everything that gates a merge; at its end, the ten slowest packages
	@mkdir -p dist
	@status=0; $(MAKE) $(GATES) 2>&1 | tee dist/test.log || status=$$?; scripts/slowest.sh dist/test.log; exit $$status

.PHONY: race
race: ## all tests, with the race detector where there is anything to race
	go test -p $(PARALLEL) -count=1 -timeout $(TIMEOUT) $(PURE)
	go test -p $(PARALLEL) -count=1 -timeout $(TIMEOUT) -run '$(EMBEDDED)|$(SERIAL)' ./internal/redis/redisstore ./internal/test/storetest
	go test -race -p $(PARALLEL) -count=1 -timeout $(TIMEOUT) -skip '$(EMBEDDED)|$(SERIAL)' $(LONG) $$(go list ./... | grep -vxF $(foreach p,$(PURE) $(LONG),-e github.com/fermata-io/fermata/$(p:./%=%)))

.PHONY: lives
lives: deps # without the race detector, which would leave a fifth of them
	$(MAKE) sim SEED=1 N=$(LIVES)

.PHONY: unit
unit: ## all tests, without the race detector: quicker, cached
	go test -timeout $(TIMEOUT) ./...

.PHONY: verify
verify: fmt-check tidy-check lint proto-check licences-check commits-check files-check ## all checks that run no tests

.PHONY: lint
lint: fmt-check ## gofmt, go vet, staticcheck
	go vet ./...
	$(TOOL) staticcheck ./...

.PHONY: fmt-check
fmt-check:
	@files=$$(gofmt -s -l .); if [ -n "$$files" ]; then echo "not formatted (run 'make fmt'):"; echo "$$files"; exit 1; fi

.PHONY: commits-check
commits-check:
	scripts/check-commits.sh

.PHONY: files-check
files-check:
	scripts/check-files.sh

.PHONY: tidy-check
tidy-check:
	go mod tidy -diff
	go mod verify

.PHONY: proto-check
proto-check:
	$(TOOL) buf lint
	$(TOOL) buf breaking --against proto/baseline.binpb
	scripts/proto-gen.sh --check

.PHONY: observability-test
observability-test: deps ## metrics, dashboards, alerts and runbooks on a cluster that real Prometheus servers watch, in each form of histograms: a minute
	go test -count=1 -timeout $(TIMEOUT) ./internal/test/observability

.PHONY: dex-test
dex-test: deps ## the sign-in of people at a real issuer, Dex: two minutes, the first time five
	cd tools/dex && go mod tidy -diff && go vet ./...
	cd tools/dex && go tool -modfile=../go.mod staticcheck ./...
	cd tools/dex && go test -count=1 -timeout $(TIMEOUT) ./...

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (10s)
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: explore
explore: deps ## every order of what can happen to one job on a real Redis, DEPTH (7) steps deep
	FERMATA_EXPLORE_DEPTH=$(DEPTH) go test -count=1 -timeout 60m -v -run TestEveryInterleaving ./internal/test/storetest

.PHONY: chaos
chaos: deps ## the faults of docs/faults.md on real processes under JOBS (10000); RUN=T01 runs one of them
	FERMATA_CHAOS=long FERMATA_CHAOS_TIME='$(CHAOS_TIME)' FERMATA_CHAOS_RUN='$(RUN)' FERMATA_CHAOS_JOBS=$(JOBS) FERMATA_CHAOS_REPORT='$(REPORT)' \
		go test -count=1 -timeout 90m -run '^TestChaos' ./internal/test/acceptance

.PHONY: takeover
takeover: deps ## kill KILLS (30) nodes of a cluster with default settings, and measure how soon others have their work
	FERMATA_TAKEOVERS=$(KILLS) go test -count=1 -timeout 30m -v -run '^TestShardTakeover$$' ./internal/test/acceptance | grep -v '^=== '

.PHONY: flood
flood: deps ## CONNECTIONS (2000) of strangers to a node of 128 MiB that serves a client and a worker meanwhile: a minute
	FERMATA_FLOOD=$(CONNECTIONS) go test -count=1 -timeout 15m -v -run '^TestFlood$$' ./internal/test/acceptance | grep -v '^=== '

.PHONY: sim
sim: deps ## lives of a simulated cluster with faults: N (20000) seeds from SEED (1) on; of one that fails, the story
	scripts/sim.sh $(SEED) $(N)

.PHONY: bench
bench: deps ## Fermata, asynq and raw Redis side by side, ROUNDS (3): writes docs/benchmarks.json and .md, 40 minutes
	cd bench && go run . -rounds $(ROUNDS) -json ../docs/benchmarks.json -docs ../docs/benchmarks.md

.PHONY: pgo
pgo: deps ## record what is hot on a job's way, for the compiler: renews scripts/hot.pgo, four minutes
	rm -rf dist/hot
	cd bench && go run . drain recurring retry submit -peers fermata -rounds 1 -profile ../dist/hot
	cd bench && go run ./pgo ../dist/hot ../scripts/hot.pgo

.PHONY: bench-quick
bench-quick: deps ## the same, one round of smaller sizes, printed only: three minutes
	mkdir -p dist
	cd bench && go run . -quick -rounds 1 -json ../dist/benchmarks-quick.json

.PHONY: bench-micro
bench-micro: deps ## Go benchmarks of the hot paths
	go test -run '^$$' -bench . -benchmem ./internal/...

.PHONY: forecast-cost
forecast-cost: deps ## cost of the forecast of JOBS jobs: processor time of node and Redis, memory
	go test -count=1 -timeout 60m ./internal/engine/forecast -run '^TestCostOfManyJobs$$' -v -jobs $(or $(JOBS),1000000)

.PHONY: bench-check
bench-check: deps # the module bench: its checks, its tests, a few jobs of each peer
	cd bench && go mod tidy -diff && go vet ./...
	cd bench && go tool -modfile=../tools/go.mod staticcheck ./...
	cd bench && go test -timeout $(TIMEOUT) ./...

##@ Release

.PHONY: release
release: binaries sbom ## archives, bills of materials, the Helm chart, provenance and checksums for PLATFORMS, into dist/release; SIGN_KEY=file signs
	$(RELEASE) archives $(STAMP) -image '$(IMAGE)' $(if $(BUILDER),-builder '$(BUILDER)')
	$(if $(SIGN_KEY),$(RELEASE) sign $(STAMP) -key '$(abspath $(SIGN_KEY))')

.PHONY: release-verify
release-verify: ## whether all of dist/release, and dist/image if there, is signed by VERIFY_KEY=file
	$(RELEASE) verify -version '$(VERSION)' -key '$(abspath $(VERIFY_KEY))'

.PHONY: image
image: binaries ## the container image for linux PLATFORMS, into dist/image; PUSH=1 IMAGE=registry/name pushes it
	$(RELEASE) image $(STAMP) -image '$(IMAGE)' $(if $(PUSH),-push)

.PHONY: image-try
image-try: ## run what `make image` made under a read-only root, as a user without rights; needs root on Linux
	scripts/image-try.sh

.PHONY: sbom
sbom: binaries ## what is linked into the binaries, as CycloneDX, into dist/release
	$(RELEASE) sbom $(STAMP)

.PHONY: binaries
binaries:
	rm -rf dist/bin
	@for platform in $(PLATFORMS); do \
		echo "dist/bin/$${platform/\//_}"; \
		VERSION='$(VERSION)' GOOS=$${platform%/*} GOARCH=$${platform#*/} scripts/build.sh "dist/bin/$${platform/\//_}"; \
	done

.PHONY: reproducible
reproducible: ## builds the release of the last commit twice, far apart, and compares every file: minutes
	PLATFORMS='$(PLATFORMS)' scripts/reproducible.sh

.PHONY: licences
licences: ## write THIRD_PARTY_LICENSES.md; refuses licences that may not be linked
	$(RELEASE) licences -platforms '$(PLATFORMS)'

.PHONY: licences-check
licences-check:
	$(RELEASE) licences -check -platforms '$(PLATFORMS)'

.PHONY: vuln
vuln: ## known vulnerabilities in what is called; VULN=must fails without the database, VULN_DB=URL is a mirror
	scripts/vuln.sh

.PHONY: release-check
release-check: # the module tools/release: its checks and tests
	cd tools/release && go mod tidy -diff && go vet ./...
	cd tools/release && go tool -modfile=../go.mod staticcheck ./...
	cd tools/release && go test -timeout $(TIMEOUT) ./...

.PHONY: chart-test
chart-test: deps ## the Helm chart, without a cluster: types, golden files, refusals, rules for pods, flags; first time three minutes
	cd deploy/helm/test && go mod tidy -diff && go vet ./...
	cd deploy/helm/test && go tool -modfile=../../../tools/go.mod staticcheck ./...
	cd deploy/helm/test && go test -count=1 -timeout $(TIMEOUT) ./...

.PHONY: kube-test
kube-test: ## chart and image on a real cluster of three machines, under load and disturbances: 15 minutes, the first time 30 more; needs root
	deploy/kubelab/try.sh

##@ Change

.PHONY: chart-update
chart-update: ## copy rules and dashboards into the chart; write its README and golden files
	scripts/chart-files.sh
	cd deploy/helm/test && go test -count=1 ./... -update

.PHONY: fmt
fmt: ## format all Go files
	gofmt -s -w .

.PHONY: proto
proto: ## generate Go code, docs/reference and the messages of the Python worker from proto/
	$(TOOL) buf lint
	scripts/proto-gen.sh
	go test -count=1 ./examples/python -run TestStubsAreCurrent -update

.PHONY: reference
reference: proto ## generate docs/reference from the protos and the commands
	go test ./cmd/... -run '^TestReferenceIsCurrent$$' -update-reference

.PHONY: dashboards
dashboards: ## make deploy/grafana/*.json, and the chart's copies, from their source
	go run ./deploy/grafana/build deploy/grafana
	scripts/chart-files.sh

##@ Machine

.PHONY: deps
deps: ## install what the checks need beside Go, if missing (redis-server, prometheus, python3-grpcio)
	@scripts/deps.sh

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
