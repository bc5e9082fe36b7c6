# You can run everything that CI runs; `make` lists it. It needs only Go, unless a line
# says more.

# Time that each fuzz target gets.
FUZZTIME ?= 10s
# How long `make crash` injects faults; delivering the remaining backlog takes longer.
CRASH ?= 30m
# Seconds that one example may take.
EXAMPLE_LIMIT ?= 120
# How long `make test-long` kills the programs of each of its tests.
LONG ?= 15s
# The tests that ask for testing.Short.
LONG_TESTS := ThroughCrashes$$|^TestConformance|^TestRandomHistories|^TestRandomCancellations|^TestTwoForwardersSharing|^TestDeliveriesThatWereMade|WholePoolCostNoLease$$|^TestARareType|^TestEachCommittedRow|^TestTwoHundred
# How many tests of a package run at once: they wait for databases and brokers more than they work.
PARALLEL ?= 4
# Runs a command with its temporary folder in memory, where there is room.
IN_MEMORY := $(CURDIR)/.ci/in-memory
# Flags of the comparison with peers, over the defaults; PEERS=--help lists them.
PEERS ?=
# What bench-guard compares with: a revision; default the latest tag, or else the parent of HEAD.
GUARD_AGAINST ?=
# Further flags of bench-guard; GUARD=--help lists them.
GUARD ?=
# Time that each benchmark gets.
BENCHTIME ?= 200ms

# The folders of the Go modules, each with a slash at its end.
MODULES := $(dir $(shell git ls-files go.mod '*/go.mod'))

LINT_VERSION := v2.15.0
LINT := .cache/bin/golangci-lint-$(LINT_VERSION)
ACTIONLINT_VERSION := v1.7.12
ACTIONLINT := .cache/bin/actionlint-$(ACTIONLINT_VERSION)

# macOS has no timeout; examples then run without a bound.
timeout := $(shell command -v timeout || command -v gtimeout)

.DEFAULT_GOAL := help
.PHONY: help demo test race test-long test-kafka test-mysql test-brokers test-drivers test-guides test-languages test-dashboard screenshots bench-dashboard test-peers test-deploy crash lint prose site bench bench-peers bench-kafka bench-guard profile simulate examples generate verify fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Watch notifications travel, with nothing to install
	go run ./cmd/demo

# `make lint` runs vet.
test: ## Run all tests but the long ones; PostgreSQL is found, or fetched once
	$(IN_MEMORY) go test -short -vet off -parallel $(PARALLEL) -timeout 20m ./...

test-long: ## Run the tests that -short leaves out or shortens; those that kill programs for LONG (15s) each
	WAYBILL_CRASH_EFFECTS=$(LONG) $(IN_MEMORY) go test -count 1 -vet off -run '$(LONG_TESTS)' -parallel $(PARALLEL) -v -timeout 24h \
		./framework/config/database ./framework/crashtest ./framework/forwarder ./framework/store/postgres ./framework/store/mysql

# The detector does not watch SQLite, C code translated to Go: its store's conformance takes four times the processor's
# time with it. The forwarder's tests run on PostgreSQL only: its goroutines are the same on every database. The test
# with large tables is left out, since it is about queries.
race: ## Run the tests under the race detector, the long ones shortened (needs a C compiler)
	CGO_ENABLED=1 WAYBILL_TEST_STORES=postgres $(IN_MEMORY) go test -race -vet off -gcflags 'modernc.org/...=-race=false' \
		-short -skip '^TestEveryPageIsQuick' -parallel $(PARALLEL) -timeout 30m ./...

test-kafka: ## Run the Kafka tests against a real broker (needs Docker, or Maven and a JRE)
	bash .ci/test-kafka

test-mysql: ## Run the tests of the MySQL store on MariaDB and on MySQL 8.0 (MySQL is fetched; MariaDB needs its server, or Debian and root)
	bash .ci/mysql -short -parallel $(PARALLEL)

test-brokers: ## Test the kinds for brokers (needs rabbitmq-server, nats-server, redis-server)
	bash .ci/test-brokers

test-drivers: ## Publish with pgx, sqlx, gorm, bun and ent, and keep a store's promises over pgx
	cd framework/outbox/pgxbatch && go vet ./...
	cd framework/outbox/drivers && go vet ./... && $(IN_MEMORY) go test -timeout 20m ./...

test-guides: ## Follow the guides of the documentation, each in an empty folder (needs bash, curl and psql)
	cd docs/walkthrough && go vet ./... && $(IN_MEMORY) go test -timeout 20m ./...

test-languages: ## Run the examples in other languages (needs psql, Python, a JDK, Node.js with npm)
	bash .ci/test-languages

test-dashboard: ## Run the tests of the dashboard in a real browser (needs Chromium)
	cd framework/dashboard/browsertest && $(IN_MEMORY) go test -timeout 15m ./...

screenshots: ## Make the pictures of the dashboard (needs Chromium) and of the demo
	cd framework/dashboard/browsertest && WAYBILL_PICTURES=$(CURDIR)/docs/images/dashboard go test -count 1 -timeout 15m -run '^TestPicturesOfTheDocumentation$$' .
	.ci/demo-picture

bench-dashboard: ## Time each page of the dashboard over 10,000,000 rows and 1,000,000 parked deliveries
	WAYBILL_DASHBOARD_ROWS=10000000 go test -count 1 -run '^TestEveryPageIsQuickHoweverMuchThereIs$$' -v -timeout 1h ./framework/dashboard/internal/pages

test-peers: ## Test the comparison with peers: everything once, with tiny sizes
	cd benchmarks && go vet ./... && $(IN_MEMORY) go test -timeout 20m ./...

test-deploy: ## Judge what installs and watches the program: image, chart, compose file, packages, unit
	cd framework/program/internal/deploy/check && go vet ./... && go test -count 1 -timeout 20m ./...

crash: ## Kill, stop and cut off forwarders and PostgreSQL for CRASH (30m); WAYBILL_CRASH_SEED replays
	WAYBILL_CRASH_DURATION=$(CRASH) go test -count 1 -run '^TestForwardersKeepTheirPromisesThroughCrashes$$' -v -timeout 24h ./framework/crashtest

lint: $(LINT) $(ACTIONLINT) ## Run the linters, which are built the first time
	$(ACTIONLINT)
	@set -e; for module in $(MODULES); do echo "--- $$module"; cd $(CURDIR)/$$module && $(CURDIR)/$(LINT) run ./...; done

prose: ## Check spelling and style of docs, comments and messages (the checker is built the first time)
	bash .ci/prose --quiet

site: ## Build the site of the documentation into .cache/site, with search (needs Python with venv)
	bash .ci/build-site

bench: ## Run the packages' benchmarks, briefly
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 20m ./...

bench-peers: ## Compare with peers, in about three quarters of an hour; docs/benchmarks.md gets the tables (PEERS=--help)
	cd benchmarks && go run ./cmd/peers --json ../docs/benchmarks/peers.json --page ../docs/benchmarks.md $(PEERS)

# The broker is one of the other processes that --others bounds.
bench-kafka: ## Compare the drains to a real Apache Kafka (needs Docker, or Maven and a JRE); docs/benchmarks.md gets the table
	bash .ci/test-kafka -- $(MAKE) bench-peers PEERS='--only drain-kafka-real --others 2 $(PEERS)'

simulate: ## Simulate fleets, in about three minutes; docs/scaling.md gets the tables and plots
	cd benchmarks && go run ./cmd/simulate --page ../docs/scaling.md

bench-guard: ## Fail where a main figure is 10 % worse than at GUARD_AGAINST, in about ten minutes; profiles go to .cache/profile
	cd benchmarks && go run ./cmd/guard --against '$(GUARD_AGAINST)' $(GUARD)

profile: ## Profile the drain of a backlog: where processor time and memory go
	@mkdir -p .cache/profile
	go test -run '^$$' -bench '^BenchmarkDrain$$' -benchtime 5x -o .cache/profile/forwarder.test \
		-cpuprofile .cache/profile/cpu.prof -memprofile .cache/profile/heap.prof ./framework/forwarder
	go tool pprof -top -nodecount 25 .cache/profile/forwarder.test .cache/profile/cpu.prof
	go tool pprof -top -nodecount 15 -sample_index alloc_space .cache/profile/forwarder.test .cache/profile/heap.prof
	@echo 'more: go tool pprof -http : .cache/profile/forwarder.test .cache/profile/cpu.prof'

examples: ## Run every example; each must end well by itself
	@rm -rf .cache/examples && mkdir -p .cache/examples
	go build -o .cache/examples/ ./examples/...
	@set -e; for program in .cache/examples/*; do \
		example=$$(basename $$program); \
		case $$example in hello) continue;; esac; \
		echo "--- examples/$$example"; \
		$(if $(timeout),$(timeout) $(EXAMPLE_LIMIT)) $$program || \
			{ code=$$?; echo "examples/$$example ended with code $$code" >&2; exit 1; }; \
	done
	@echo '--- examples/hello needs a PostgreSQL, which its test brings'
	go test ./examples/hello
	cd examples/own-program && go vet ./... && go test ./...

generate: ## Make the generated files again: wiring, references
	go generate ./...

verify: ## Check formatting, go.mod, and that the generated files are current
	bash .ci/verify

fuzz: ## Fuzz every decoder for FUZZTIME (10s)
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | sed 's|/[^/]*$$||' | sort -u); do \
		for target in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c 6-); do \
			echo "--- $$dir $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$dir; \
		done; \
	done

clean: ## Remove what the targets built
	rm -rf .cache bin

$(LINT):
	GOBIN=$(CURDIR)/.cache/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv .cache/bin/golangci-lint $@

$(ACTIONLINT):
	GOBIN=$(CURDIR)/.cache/bin go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
	mv .cache/bin/actionlint $@
