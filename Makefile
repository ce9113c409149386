# `make` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

TOOL := go tool -modfile=tools/go.mod
VERSION ?= $(shell scripts/version.sh)
# Platforms of a release; name of its image, and whether to push it (PUSH=1).
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
IMAGE ?= ghcr.io/fermata-io/fermata
PUSH ?=
# Private key that signs a release, none by default; public key that checks it; URI of the builder, for the provenance.
SIGN_KEY ?=
VERIFY_KEY ?=
BUILDER ?=
SOURCE_DATE_EPOCH ?= $(shell scripts/version.sh epoch)
RELEASE = go run -C tools/release .
STAMP = -version '$(VERSION)' -revision '$(shell scripts/version.sh commit)' -epoch '$(SOURCE_DATE_EPOCH)' -platforms '$(PLATFORMS)'
TIMEOUT ?= 30m
# Packages whose tests run at a time: one a processor. More of them would keep nodes of tests from their processor.
PARALLEL ?= $(shell getconf _NPROCESSORS_ONLN)
# No debug information: a fifth of what it takes to compile. All commands have the same flags, so that what one has
# compiled serves the others; scripts/build.sh, which makes what is shipped, sets its own.
export GOFLAGS := $(strip $(GOFLAGS) -gcflags=all=-dwarf=false)
# The race detector lets each program sleep for a second at its end, in which it may find a race. Tests and nodes
# wait for their goroutines themselves.
RACE := GORACE=atexit_sleep_ms=0
# Tests of clusters within one process. Like those of processes, they wait for more than half of their time.
CLUSTERS := ./internal/node
# Of the other packages, those with the longest tests start first, so that no core waits for them at the end.
LONG := ./internal/test/storetest ./cmd/fermata ./internal/redis/shardlock
# Tests whose nodes and workers are processes of their own. Built with the race detector, those need four times the
# processor and miss their deadlines on a small machine; `make race-processes` does that. Tests within one process
# (internal/node) have it.
PROCESSES := ./internal/test/acceptance ./internal/test/observability ./internal/cli/workercheck
# Packages without goroutines (docstest checks that): nothing can race in them, and their
# exhaustive tests take five times as long under the race detector.
PURE := ./internal/core/backoff ./internal/core/forecast ./internal/lib/ticks ./internal/core/job ./internal/core/lease ./internal/lib/minheap ./internal/core/sharding ./internal/core/schedule ./internal/lib/roundrobin \
	./internal/lib/mask ./internal/lib/yamldoc ./internal/cli/importer ./internal/test/docstest ./internal/test/archtest \
	./internal/core/authz ./internal/core/autoscale ./internal/core/jobfilter ./internal/core/payload ./internal/core/unixtime \
	./internal/lib/dialhint ./internal/lib/egress ./internal/lib/eventrate ./internal/lib/fairshare ./internal/lib/retryafter \
	./internal/lib/spelling ./internal/lib/timespan ./internal/lib/visible ./internal/cli/manifest ./internal/cli/suggest \
	./internal/cli/zones ./internal/api/apierror ./internal/api/convert ./internal/api/wirefield ./internal/auth/payloadkeys \
	./internal/engine/defaults ./internal/redis/codec ./internal/redis/rediserr ./internal/test/historycheck ./proto/protodoc \
	./deploy/grafana/build ./sdk/python ./worker/secrets
# Tests with embedded Redis. Under the race detector they are four times as slow and run mostly a Lua interpreter.
# Tests with a real Redis run the same code of ours.
EMBEDDED := Embedded$$
# Tests of the store that make one call at a time: the suite on other kinds of servers, and the long histories. The
# suite on the first kind finds the same races.
SERIAL := ^(TestSuiteOnCluster|TestSuiteByFunctions|TestEveryGrantedCommandIsUsed|TestEveryInterleaving|TestLostRepliesInRandomHistories)$$
# Tests of large amounts: of requests, leases and records up to their bounds, and of programs. Most of their time would be
# the race detector's notes of memory. Other tests of their packages make the same goroutines do less, under it.
LARGE := ^(TestSessionsOfAnIdentityShareTheirReturns|TestADeadShardCostsNoOtherLeases|TestSessionsTakeMemoryOfTheProcess|TestLargeRequestsOfManyCallers|TestChangesOfOthersLoseNoRecord|TestWorkerWithMostSlotsComesBack|TestFloodOfLargeRequests|TestLargeMessagesOfStreams|TestMetacharactersArriveLiterally|TestOtherChildrenAreNotReaped)$$
LARGE_IN := ./internal/engine/dispatch ./internal/api/rpc ./worker/exechandler
# Browser tests that take more than five seconds each or need several tabs; `make console-test` has them.
CONSOLE_LONG := ^(TestEditSurvivesTheEndOfASession|TestRestoreRevision|TestBulkChangesOfDeadLetters|TestRedrive|TestWhatFailed|TestGroupOfAnError|TestJobShowsItsBackoff|TestConsoleWhileANodeIsKilled|TestConsoleUnderLoad|TestSleepAndWake|TestTwoTabs|TestSignInLeadsBack|TestSignInInAnotherTab|TestBehindAProxy|TestRunWithAnotherPayload)$$
FUZZTIME ?= 10s
DEPTH ?= 7
SEED ?= 1
# `make chaos`: how long each fault lasts, the number of jobs, which trials to run (a regular expression, such as
# T01|T18) and the file for the figures.
CHAOS_TIME ?= 30s
JOBS ?= 10000
FIND_JOBS ?= 1000000
CONSOLE_JOBS ?= 100000
RUN ?=
SCREENSHOTS ?=
REPORT ?=
N ?= 20000
KILLS ?= 30
# Connections of `make flood`, within the limit of open files. Two processors can serve this many, together with the
# strangers, which run on the same machine.
CONNECTIONS ?= 2000
# Rounds of `make bench`.
ROUNDS ?= 3
# Number of simulated clusters that must pass before a merge, and of those that have the race detector: it sees the same
# goroutines in each of them.
LIVES ?= 60
RACED_LIVES ?= 3

##@ Use

.PHONY: run
run: build ## start one node with embedded Redis, a worker, sample jobs and a live view
	@exec bin/scheduler dev # not `go run`, which takes a clean stop by Ctrl-C for a failure

.PHONY: build
build: ## build all commands into bin/
	VERSION='$(VERSION)' scripts/build.sh bin

##@ Check

# Checks that take seconds, and go vet, which compiles everything once.
QUICK_CHECKS := fmt-check commits-check files-check tidy-check vet windows-check
# Checks that compile large tools.
SLOW_CHECKS := staticcheck console-check licences-check proto-check vuln
# Everything that must pass before a merge; cheap checks first.
GATES := deps $(QUICK_CHECKS) gate
# go vet has passed before: go test does not repeat it.
GATE_TEST := go test -vet=off

.PHONY: test
test: ## run everything that must pass before a merge; print the ten slowest packages
	@mkdir -p dist
	@status=0; $(MAKE) $(GATES) 2>&1 | tee dist/test.log || status=$$?; scripts/slowest.sh dist/test.log; exit $$status

.PHONY: race
race: test-processes test-clusters test-others ## run all Go tests, those within one process with the race detector

.PHONY: test-processes
test-processes:
	$(GATE_TEST) -p $(PARALLEL) -count=1 -timeout $(TIMEOUT) $(PROCESSES)

.PHONY: test-clusters
test-clusters:
	$(RACE) $(GATE_TEST) -race -count=1 -timeout $(TIMEOUT) $(CLUSTERS)

.PHONY: test-others
test-others:
	$(GATE_TEST) -p $(PARALLEL) -count=1 -timeout $(TIMEOUT) $(PURE)
	$(GATE_TEST) -p $(PARALLEL) -count=1 -timeout $(TIMEOUT) -run '$(EMBEDDED)|$(SERIAL)' ./internal/redis/redisstore ./internal/redis/limits ./internal/test/storetest
	$(GATE_TEST) -p $(PARALLEL) -count=1 -timeout $(TIMEOUT) -run '$(LARGE)' $(LARGE_IN)
	$(RACE) FERMATA_SIM_SEEDS=$(RACED_LIVES) $(GATE_TEST) -race -p $(PARALLEL) -count=1 -timeout $(TIMEOUT) -skip '$(EMBEDDED)|$(SERIAL)|$(LARGE)' $(LONG) $$(go list ./... | grep -vxF $(foreach p,$(PURE) $(PROCESSES) $(CLUSTERS) $(LONG),-e github.com/fermata-io/fermata/$(p:./%=%)))

.PHONY: race-processes
race-processes: deps ## run the tests of processes with the race detector, also in the nodes of tests with a load: half an hour
	$(RACE) go test -race -p 1 -count=1 -timeout 60m $(PROCESSES)

.PHONY: lives
lives: deps # without the race detector, which would leave a fifth of them
	$(MAKE) sim SEED=1 N=$(LIVES)

.PHONY: unit
unit: ## run all tests without the race detector: faster, cached
	go test -timeout $(TIMEOUT) ./...

.PHONY: gate
gate: # two lanes: tests with deadlines, and at a low priority what uses the processors meanwhile
	$(MAKE) -j2 gate-deadlines gate-others

.PHONY: gate-deadlines
gate-deadlines: # they wait for leases, locks and heartbeats; two at a time leave enough of the processors
	$(MAKE) test-processes
	$(MAKE) -j2 test-clusters clients-check

.PHONY: gate-others
gate-others: # at a low priority, so that tests with deadlines get a processor when they need one
	nice -n 10 $(MAKE) release-check $(SLOW_CHECKS) bench-check test-others lives

.PHONY: verify
verify: $(QUICK_CHECKS) $(SLOW_CHECKS) ## run all checks except tests

.PHONY: lint
lint: fmt-check vet staticcheck ## run gofmt, go vet and staticcheck

.PHONY: vet
vet:
	go vet ./...

.PHONY: staticcheck
staticcheck:
	$(TOOL) staticcheck ./...

.PHONY: windows-check
windows-check: ## check that clients, workers and the command line have no error for Windows; nodes are for Linux and macOS
	go test -vet=off -count=1 -run '^TestUsersProgramsAreValidOnWindows$$' ./internal/test/archtest

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
	scripts/buf.sh lint
	scripts/buf.sh breaking --against proto/baseline.binpb
	scripts/proto-gen.sh --check

.PHONY: console-check
console-check: # the bundle of the web console is that of its sources; its types, where npx is
	scripts/console.sh --check

.PHONY: console-test
console-test: deps ## test the web console in Chromium against real nodes; SCREENSHOTS=DIR writes pictures
	cd console/browsertest && go mod tidy -diff && go vet ./...
	cd console/browsertest && go tool -modfile=../../tools/go.mod staticcheck ./...
	cd console/browsertest && CONSOLE_SCREENSHOTS='$(abspath $(SCREENSHOTS))' go test -count=1 -timeout $(TIMEOUT) ./...

.PHONY: console-load
console-load: deps ## measure the web console with CONSOLE_JOBS (100000) jobs and 1,000 events a second: two minutes
	cd console/browsertest && CONSOLE_JOBS=$(CONSOLE_JOBS) go test -count=1 -v -timeout $(TIMEOUT) -run '^TestConsoleUnderLoad$$' . | grep -v '^=== '

.PHONY: console-short
console-short: deps # the same without the tests that wait for runs to fail, or for sessions to end
	cd console/browsertest && go mod tidy -diff && go vet ./...
	cd console/browsertest && go tool -modfile=../../tools/go.mod staticcheck ./...
	cd console/browsertest && $(GATE_TEST) -count=1 -timeout $(TIMEOUT) -skip '$(CONSOLE_LONG)' ./...

.PHONY: clients-check
clients-check: # one after the other, also within `make -j2`
	$(MAKE) -j1 console-short sdk-typescript-short sdk-python

.PHONY: sdk-typescript
sdk-typescript: deps ## check the TypeScript package: generated code, types, tests against nodes, conformance of its worker: two minutes
	scripts/typescript.sh --trial

.PHONY: sdk-typescript-short
sdk-typescript-short: deps # the same without the trial that kills workers and nodes
	scripts/typescript.sh --check

.PHONY: sdk-python
sdk-python: deps ## check the Python package (types, tests, examples, archives) and the Ruby worker, both also by `fermata worker check`
	scripts/sdk-python.sh

.PHONY: observability-test
observability-test: deps ## test metrics, dashboards, alerts and runbooks with real Prometheus servers: a minute
	go test -count=1 -timeout $(TIMEOUT) ./internal/test/observability

.PHONY: dex-test
dex-test: deps ## test sign-in of people with the issuer Dex, by the command line and to the web console: three minutes, the first time five
	cd tools/dex && go mod tidy -diff && go vet ./...
	cd tools/dex && go tool -modfile=../go.mod staticcheck ./...
	cd tools/dex && go test -count=1 -timeout $(TIMEOUT) ./...

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (10s)
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: explore
explore: deps ## try every order of events of one job on a real Redis, DEPTH (7) steps deep
	FERMATA_EXPLORE_DEPTH=$(DEPTH) go test -count=1 -timeout 60m -v -run TestEveryInterleaving ./internal/test/storetest

.PHONY: chaos
chaos: deps ## inject the faults of docs/faults.md into real processes under JOBS (10000); RUN=T01 runs one of them
	worker=$$(scripts/typescript.sh --worker) && FERMATA_TYPESCRIPT_WORKER=$$worker \
		FERMATA_CHAOS=long FERMATA_CHAOS_TIME='$(CHAOS_TIME)' FERMATA_CHAOS_RUN='$(RUN)' FERMATA_CHAOS_JOBS=$(JOBS) FERMATA_CHAOS_REPORT='$(REPORT)' \
		go test -count=1 -timeout 90m -run '^TestChaos' ./internal/test/acceptance

.PHONY: find-load
find-load: deps ## list jobs on three nodes that have FIND_JOBS (1000000); measure calls, memory, and the lag meanwhile
	FERMATA_FIND_JOBS=$(FIND_JOBS) go test -count=1 -timeout 30m -v -run '^TestListsOfManyJobs$$' ./internal/test/acceptance | grep -v '^=== '

.PHONY: takeover
takeover: deps ## kill KILLS (30) nodes with default settings, and measure how soon others take over their work
	FERMATA_TAKEOVERS=$(KILLS) go test -count=1 -timeout 30m -v -run '^TestShardTakeover$$' ./internal/test/acceptance | grep -v '^=== '

.PHONY: flood
flood: deps ## open CONNECTIONS (2000) from strangers to a node with 128 MiB that also serves a client and a worker: a minute
	FERMATA_FLOOD=$(CONNECTIONS) go test -count=1 -timeout 15m -v -run '^TestFlood$$' ./internal/test/acceptance | grep -v '^=== '

.PHONY: sim
sim: deps ## simulate clusters with faults: N (20000) seeds from SEED (1) on; print the history of a failed one
	scripts/sim.sh $(SEED) $(N)

.PHONY: bench
bench: deps ## compare Fermata, asynq and raw Redis in ROUNDS (3); write docs/benchmarks.json and .md: 45 minutes at most
	cd bench && go run . -rounds $(ROUNDS) -json ../docs/benchmarks.json -docs ../docs/benchmarks.md

.PHONY: pgo
pgo: deps ## record a profile of frequent calls for the compiler (scripts/hot.pgo): four minutes
	rm -rf dist/hot
	cd bench && go run . drain recurring retry submit -peers fermata -rounds 1 -profile ../dist/hot
	cd bench && go run ./pgo ../dist/hot ../scripts/hot.pgo

.PHONY: bench-quick
bench-quick: deps ## run one round of bench with smaller sizes, print it only: three minutes
	mkdir -p dist
	cd bench && go run . -quick -rounds 1 -json ../dist/benchmarks-quick.json

.PHONY: bench-micro
bench-micro: deps ## run the Go benchmarks of the hot paths
	go test -run '^$$' -bench . -benchmem ./internal/...

.PHONY: forecast-cost
forecast-cost: deps ## cost of the forecast of JOBS jobs: processor time of node and Redis, memory
	go test -count=1 -timeout 60m ./internal/engine/forecast -run '^TestCostOfManyJobs$$' -v -check-cost -jobs $(or $(JOBS),1000000)

.PHONY: bench-check
bench-check: deps # the module bench: its checks, its tests, a few jobs of each peer
	cd bench && go mod tidy -diff && go vet ./...
	cd bench && go tool -modfile=../tools/go.mod staticcheck ./...
	cd bench && $(GATE_TEST) -timeout $(TIMEOUT) ./...

##@ Release

.PHONY: release
release: binaries sbom ## write archives, bills of materials, the Helm chart, provenance and checksums for PLATFORMS to dist/release; SIGN_KEY=file signs them
	$(RELEASE) archives $(STAMP) -image '$(IMAGE)' $(if $(BUILDER),-builder '$(BUILDER)')
	$(if $(SIGN_KEY),$(RELEASE) sign $(STAMP) -key '$(abspath $(SIGN_KEY))')

.PHONY: release-verify
release-verify: ## check that dist/release, and dist/image if it exists, are complete and signed by VERIFY_KEY=file
	$(RELEASE) verify -version '$(VERSION)' -key '$(abspath $(VERIFY_KEY))'

.PHONY: image
image: binaries ## write the container image for the linux PLATFORMS to dist/image; PUSH=1 IMAGE=registry/name pushes it
	$(RELEASE) image $(STAMP) -image '$(IMAGE)' $(if $(PUSH),-push)

.PHONY: image-try
image-try: ## run the image under a read-only root as an unprivileged user; needs root on Linux
	scripts/image-try.sh

.PHONY: sbom
sbom: binaries ## write bills of materials of the binaries (CycloneDX) to dist/release
	$(RELEASE) sbom $(STAMP)

.PHONY: binaries
binaries:
	rm -rf dist/bin
	@for platform in $(PLATFORMS); do \
		echo "dist/bin/$${platform/\//_}"; \
		VERSION='$(VERSION)' GOOS=$${platform%/*} GOARCH=$${platform#*/} scripts/build.sh "dist/bin/$${platform/\//_}"; \
	done

.PHONY: reproducible
reproducible: ## build the release of the last commit twice, in separate clones, and compare every file: minutes
	PLATFORMS='$(PLATFORMS)' scripts/reproducible.sh

.PHONY: licences
licences: ## write THIRD_PARTY_LICENSES.md; fail for licences that are not allowed
	$(RELEASE) licences -platforms '$(PLATFORMS)'

.PHONY: licences-check
licences-check:
	$(RELEASE) licences -check -platforms '$(PLATFORMS)'

.PHONY: vuln
vuln: ## look for known vulnerabilities in called code; VULN=must fails without the database, VULN_DB=URL sets a mirror
	scripts/vuln.sh

.PHONY: release-check
release-check: # the module tools/release: its checks and tests
	cd tools/release && go mod tidy -diff && go vet ./...
	cd tools/release && go tool -modfile=../go.mod staticcheck ./...
	cd tools/release && $(GATE_TEST) -timeout $(TIMEOUT) ./...

.PHONY: chart-test
chart-test: deps ## test the Helm chart without a cluster: types, golden files, refusals, security, flags; first time three minutes
	cd deploy/helm/test && go mod tidy -diff && go vet ./...
	cd deploy/helm/test && go tool -modfile=../../../tools/go.mod staticcheck ./...
	cd deploy/helm/test && go test -count=1 -timeout $(TIMEOUT) ./...

.PHONY: kube-test
kube-test: ## test chart and image on a simulated cluster of three machines under load and faults: 15 minutes, the first time 30 more; needs root
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
proto: ## generate Go code, docs/reference and the messages for Python and Ruby from proto/
	scripts/buf.sh lint
	scripts/proto-gen.sh
	go test -count=1 ./sdk/python ./examples/ruby -run TestStubsAreCurrent -update

.PHONY: reference
reference: proto ## generate docs/reference from the protos and the commands
	go test ./cmd/... -run '^TestReferenceIsCurrent$$' -update-reference

.PHONY: console
console: ## generate the API client of the web console from the OpenAPI document, and build its bundle from console/src
	scripts/console.sh

.PHONY: typescript
typescript: ## generate the messages of the TypeScript package from proto/
	scripts/typescript.sh

.PHONY: dashboards
dashboards: ## generate deploy/grafana/*.json, and the chart's copies
	go run ./deploy/grafana/build deploy/grafana
	scripts/chart-files.sh

##@ Machine

.PHONY: deps
deps: ## install missing tools of the checks (redis-server, prometheus, chromium, gRPC for Python and Ruby, Node.js)
	@scripts/deps.sh

.PHONY: clean
clean: ## remove all build results
	rm -rf bin dist

.PHONY: help
help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
