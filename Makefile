# `make` lists the targets. Together they are everything that CI runs. A target needs only Go, unless
# its description names more.

# Duration of each fuzz target.
FUZZTIME ?= 10s
# How long `make crash` injects faults. Afterwards it delivers the backlog, which takes longer.
CRASH ?= 30m
# How long `make soak` injects faults.
SOAK ?= 1h
# How many random histories `make histories` plays, or if HISTORIES is set, for how long, such as 60s. SEED is the seed of
# the first one, otherwise another one each time. HISTORY is a file with a history to play instead.
SEEDS ?= 10000
HISTORIES ?=
SEED ?=
HISTORY ?=
# Time limit of one example, in seconds.
EXAMPLE_LIMIT ?= 120
# How often each test of `make test-long` that kills programs does so.
LONG ?= 12
# Regular expressions of the tests that check testing.Short.
LONG_TESTS := ThroughCrashes$$ ^TestForwardersOutlive ^TestConformance[A-Z] ^TestRandomHistories ^TestRandomCancellations ^TestTwoForwardersSharing \
	^TestDeliveriesAreNotRepeated CostNoLease$$ ^TestARareType ^TestEachCommittedRow ^TestManyDatabases ^TestAHotKey \
	^TestALogOfOneKey ^TestDueDeliveries ^TestRetriesAndNew ^TestTheNumberOfLanesChanges ^TestTheObserverAndTheState \
	^TestAnUnavailableBank ^TestDeliveriesKeepTheRate ^TestTenantsShareEvenly ^TestForwardersShareASinksRate \
	^TestAHookThatTakesAMillisecond
# How many tests of a package run at once. They mostly wait for databases and brokers.
PARALLEL ?= 4
# How many packages are built or tested at once, for the same reason more than there are processors.
AT_ONCE ?= 4
# All packages; first those whose tests take longest or mostly wait.
PACKAGES := ./framework/forwarder ./sinks/... ./framework/store/postgres ./framework/program ./...
# Runs tests so that they use memory to save time.
IN_MEMORY := $(CURDIR)/.ci/in-memory
# Packages for the race detector: those whose goroutines share something. Of the command line only the tests of forward and
# its reloads, which have many goroutines; the others do one thing after another.
RACES := ./framework/forwarder/... ./framework/outbox ./framework/observe ./framework/schedule ./framework/source/kafka \
	./framework/config/database ./framework/store/postgres ./registry ./sinks/email ./sinks/httpsink ./sinks/kafka ./sinks/process \
	./sinks/publisher .
RACES_OF_FORWARD := ^TestForward|Reload|SIGHUP|Collector
# Tests that the race detector skips, and `make test` runs: those that break a server, restart it or fill it with rows,
# one after the other, those of the documentation, and what people do with a store, one statement at a time.
NO_RACES := ^TestAForwarderSurvivesFaults ^TestACheckpointInterrupted ^TestStricterIsolation ^TestARestoredDatabase \
	^TestAFailoverToAStandby ^TestASilentNetwork ^TestTheForwarderWaitsWhileADisk ^TestTheForwarderOutlives ^TestSimulate \
	^TestManyDatabases ^TestManyReleasedKeys ^TestLittleMemory Documentation ^TestEachInvariant \
	^TestConformance$$/^(Operator|Replay|Reroute|Route|Trace|Related|Browse|Cancel|Values|Types|Sample)$$
# The race detector skips SQLite, which is C translated into Go: with it the conformance suite of its store takes four
# times the processor time. The forwarder's tests run on PostgreSQL only: its goroutines are the same on every database.
RACE = CGO_ENABLED=1 WAYBILL_TEST_STORES=postgres $(IN_MEMORY) go test -race -vet off -gcflags 'modernc.org/...=-race=false' \
	-short -skip '$(call any,$(NO_RACES))' -p $(AT_ONCE) -parallel $(PARALLEL) -timeout 30m
# Flags of the comparison with peers; PEERS=--help lists them.
PEERS ?=
# Names or regular expressions of the mutants that `make mutants` plants; default: all. MUTANTS_OF draws as many at random.
MUTANTS ?=
MUTANTS_OF ?= 0
# Flags of the mutants, such as --check and --seed; MUTANT_FLAGS=--help lists them.
MUTANT_FLAGS ?=
# Revision with which bench-guard compares; default: the latest tag, or the parent of HEAD if there is no tag.
GUARD_AGAINST ?=
# Flags of bench-guard; GUARD=--help lists them.
GUARD ?=
# Duration of each benchmark.
BENCHTIME ?= 200ms

# Folders of the Go modules, with a slash at the end.
MODULES := $(dir $(shell git ls-files go.mod '*/go.mod'))

LINT_VERSION := v2.15.0
LINT := .cache/bin/golangci-lint-$(LINT_VERSION)
ACTIONLINT_VERSION := v1.7.12
ACTIONLINT := .cache/bin/actionlint-$(ACTIONLINT_VERSION)

space := $(subst ,, )
# One regular expression of several: $(call any,LIST).
any = $(subst $(space),|,$(strip $(1)))

# macOS has no command timeout; examples then run without a time limit.
timeout := $(shell command -v timeout || command -v gtimeout)

.DEFAULT_GOAL := help
.PHONY: help demo test race test-long test-kafka test-mysql test-brokers test-clouds test-drivers test-guides test-languages test-asyncapi test-registry test-dashboard screenshots bench-dashboard test-peers test-deploy crash soak histories mutants model lint prose site bench bench-peers bench-kafka bench-guard profile simulate examples generate verify fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Run the demo, which needs nothing to be installed
	@echo 'building the demo, which takes a minute or two the first time'
	go run ./cmd/demo

# Vet is off, since `make lint` runs it. What the forwarder does on every database is tested on SQLite here, which is
# much quicker, and on PostgreSQL by `make race`.
test: ## Run all tests except the long ones; they use an installed PostgreSQL, or fetch one once
	WAYBILL_TEST_STORES=sqlite $(IN_MEMORY) go test -short -vet off -p $(AT_ONCE) -parallel $(PARALLEL) -timeout 20m $(PACKAGES)

# The forwarder's tests run on PostgreSQL only, since `make test` runs them on SQLite.
test-long: ## Run the tests that -short skips or shortens; LONG (12) is how often each of them kills programs
	WAYBILL_CRASH_EFFECTS=$(LONG) WAYBILL_TEST_STORES=postgres $(IN_MEMORY) go test -tags failpoint -count 1 -vet off -run '$(call any,$(LONG_TESTS))' -p $(AT_ONCE) -parallel $(PARALLEL) -timeout 24h \
		./framework/config/database ./framework/crashtest ./framework/forwarder ./framework/store/postgres ./framework/store/mysql

race: ## Run the tests of what has goroutines, with -short, under the race detector (needs a C compiler)
	$(RACE) $(RACES)
	$(RACE) -run '$(RACES_OF_FORWARD)' ./framework/program

test-kafka: ## Run the Kafka tests against a real broker (needs Docker, or Maven and a JRE)
	bash .ci/test-kafka

test-mysql: ## Run the tests of the MySQL store on MariaDB and on MySQL 8.0 (fetches MySQL, and installs MariaDB on Debian as root)
	bash .ci/mysql -short -parallel $(PARALLEL)

test-brokers: ## Test the sinks for RabbitMQ, NATS and Redis (needs rabbitmq-server, nats-server, redis-server)
	bash .ci/test-brokers

test-clouds: ## Test the sinks for AWS and Google Cloud, and the program with all kinds (needs python3 with venv, Maven and Java)
	bash .ci/test-clouds

test-drivers: ## Test publishing with pgx, sqlx, gorm, bun and ent, and the conformance of the store on pgx
	cd framework/waybillpgx && $(IN_MEMORY) go test -timeout 20m ./...
	cd framework/outbox/drivers && go generate ./... && $(IN_MEMORY) go test -timeout 20m -tags entclient ./...

test-guides: ## Run the commands of the guides in the documentation, and check the tasks (needs bash, curl, psql, Python)
	cd docs/walkthrough && $(IN_MEMORY) go test -timeout 20m ./...

test-languages: ## Run the examples in other languages (needs psql, Python, a JDK, Node.js with npm)
	bash .ci/test-languages

test-registry: ## Run the tests of encoding with a real schema registry (needs Maven and a JRE)
	bash .ci/test-registry

test-asyncapi: ## Check the documents that `waybill types asyncapi` prints (needs Node.js with npm)
	bash .ci/test-asyncapi

test-dashboard: ## Run the tests of the dashboard and of the portal in a real browser (needs Chromium)
	cd framework/dashboard/browsertest && $(IN_MEMORY) go test -timeout 15m ./...

screenshots: ## Generate the pictures of the dashboard (needs Chromium) and of the demo
	cd framework/dashboard/browsertest && WAYBILL_PICTURES=$(CURDIR)/docs/images/dashboard go test -count 1 -timeout 15m -run '^TestPicturesOfTheDocumentation$$' .
	.ci/demo-picture

bench-dashboard: ## Measure each page of the dashboard with 10,000,000 rows and 1,000,000 parked deliveries
	WAYBILL_DASHBOARD_ROWS=10000000 go test -count 1 -run '^TestEveryPageIsQuickHoweverMuchThereIs$$' -v -timeout 1h ./framework/dashboard/internal/pages

test-peers: ## Test the comparison with peers: run everything once, with tiny sizes
	cd benchmarks/peers && $(IN_MEMORY) go test -timeout 20m ./...

test-deploy: ## Test the deployment files: image, chart, compose file, packages, systemd unit, alert rules
	cd framework/program/internal/deploy/check && go test -count 1 -timeout 20m ./...

crash: ## Cause all faults for CRASH (30m); WAYBILL_CRASH_SEED repeats a run, OTHER is a revision that half of the forwarders run
	@rm -rf .cache/other
	$(if $(OTHER),git worktree add --force --detach .cache/other '$(OTHER)' && cd .cache/other && GOWORK=off go build -tags failpoint -o waybill ./cmd/waybill)
	WAYBILL_CRASH_OTHER='$(if $(OTHER),$(CURDIR)/.cache/other/waybill)' WAYBILL_CRASH_DURATION=$(CRASH) go test -count 1 -run '^TestForwardersKeepTheirPromisesThroughCrashes$$' -v -timeout 24h ./framework/crashtest

soak: ## Run four forwarders to Kafka and HTTP through all faults for SOAK (1h), and see that nothing grows (needs Docker, or Maven and a JRE)
	WAYBILL_SOAK=$(SOAK) bash .ci/test-kafka -- go test -count 1 -run '^TestNothingGrows' -v -timeout 24h ./framework/crashtest

mutants: ## Plant defects and see that the tests notice each of them (MUTANTS='names', MUTANTS_OF=6 at random)
	$(IN_MEMORY) go run ./framework/internal/mutants --of $(MUTANTS_OF) $(MUTANT_FLAGS) $(foreach name,$(MUTANTS),'$(name)')

histories: ## Play SEEDS (10000) random histories of faults in virtual time, or for HISTORIES (60s); HISTORY=file plays one
	WAYBILL_HISTORIES='$(or $(HISTORIES),$(SEEDS))' WAYBILL_HISTORIES_SEED='$(SEED)' WAYBILL_HISTORY='$(abspath $(HISTORY))' \
		$(IN_MEMORY) go test -count 1 -vet off -run '^TestRandomHistories' -v -timeout 48h ./framework/forwarder

# All modules in one workspace, so that packages are analysed once, and not again for each module that imports them. The
# modules below sinks need the replacements of their own workspace.
lint: $(LINT) $(ACTIONLINT) ## Run the linters, which the first run builds
	$(ACTIONLINT)
	@cd .cache && rm -f go.work* && GOWORK=off go work init $(addprefix ../,$(MODULES)) && \
		go work edit $$(sed -n 's|^[[:blank:]]*\(.*\) \(v.*\) => |-replace=\1@\2=../sinks/|p' ../sinks/go.work) go.work
	GOWORK=$(CURDIR)/.cache/go.work $(LINT) run $(patsubst %,./%...,$(MODULES))

prose: ## Check spelling and style of docs, comments and messages (the first run builds the checker)
	bash .ci/prose

model: ## Check the model of the engine (needs a JDK, or a JRE and patience); MODEL=large searches more, MODEL='show FILE COMMAND' shows what one finds
	bash .ci/model $(MODEL)

site: ## Build the documentation site with search in .cache/site (needs Python with venv)
	bash .ci/build-site

bench: ## Run the benchmarks of the packages, for a short time each
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 20m ./...

bench-peers: ## Compare with peers, in about half an hour, and write the tables into docs/benchmarks.md (PEERS=--help)
	cd benchmarks/peers && go run . --json ../../docs/benchmarks/peers.json --page ../../docs/benchmarks.md $(PEERS)

# The broker is one of the other processes that --others limits.
bench-kafka: ## Compare the drains to a real Apache Kafka (needs Docker, or Maven and a JRE), and write the table into docs/benchmarks.md
	bash .ci/test-kafka -- $(MAKE) bench-peers PEERS='--only drain-kafka-real --others 2 $(PEERS)'

simulate: ## Run fleets in virtual time, in some minutes, and write the tables and plots of docs/scaling.md
	WAYBILL_SIMULATE=$(CURDIR)/docs/scaling.md $(IN_MEMORY) go test -count 1 -run '^TestSimulate' -v -timeout 1h ./framework/forwarder

bench-guard: ## Fail if a main figure is 10 % worse than at GUARD_AGAINST, in about ten minutes
	go run ./benchmarks/guard --against '$(GUARD_AGAINST)' $(GUARD)

profile: ## Profile the processor time and memory of draining a backlog
	@mkdir -p .cache/profile
	go test -run '^$$' -bench '^BenchmarkDrain$$' -benchtime 5x -o .cache/profile/forwarder.test \
		-cpuprofile .cache/profile/cpu.prof -memprofile .cache/profile/heap.prof ./framework/forwarder
	go tool pprof -top -nodecount 25 .cache/profile/forwarder.test .cache/profile/cpu.prof
	go tool pprof -top -nodecount 15 -sample_index alloc_space .cache/profile/forwarder.test .cache/profile/heap.prof
	@echo 'more: go tool pprof -http : .cache/profile/forwarder.test .cache/profile/cpu.prof'

examples: ## Run every example; each must exit with 0
	@rm -rf .cache/examples && mkdir -p .cache/examples
	go build -o .cache/examples/ ./examples/...
	@set -e; for program in .cache/examples/*; do \
		example=$$(basename $$program); \
		case $$example in hello|webhooks) continue;; esac; \
		echo "--- examples/$$example"; \
		$(if $(timeout),$(timeout) $(EXAMPLE_LIMIT)) $$program || \
			{ code=$$?; echo "examples/$$example ended with code $$code" >&2; exit 1; }; \
	done
	@echo '--- examples/hello needs a PostgreSQL, and examples/webhooks a person, which their tests are'
	go test ./examples/hello ./examples/webhooks
	cd examples/own-program && go test ./...

generate: ## Generate the files that are generated: wiring, references
	go generate ./...

verify: ## Check formatting, go.mod, and that generated files are current
	bash .ci/verify

fuzz: ## Fuzz every decoder for FUZZTIME (10s)
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | sed 's|/[^/]*$$||' | sort -u); do \
		for target in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c 6-); do \
			echo "--- $$dir $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$dir; \
		done; \
	done

clean: ## Remove everything that the targets built
	rm -rf .cache bin

$(LINT):
	GOBIN=$(CURDIR)/.cache/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv .cache/bin/golangci-lint $@

$(ACTIONLINT):
	GOBIN=$(CURDIR)/.cache/bin go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
	mv .cache/bin/actionlint $@
