# make        what there is to do
# The Go release is named once, here: an older Go fetches it by itself.
export GOTOOLCHAIN := go1.27.3

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:

cc := $(shell command -v $(CC) || command -v gcc || command -v clang)
ifneq ($(cc),)
export CC := $(cc)
endif
spin := $(shell command -v spin)
zstd := $(shell command -v zstd)
kcat := $(shell command -v kcat)
kafka_tools := $(and $(shell command -v java),$(shell command -v mvn))
kafka_port := 19092
chaos_rounds := 200
chaos_ci_rounds := 20
lint := go tool -modfile=tools/go.mod golangci-lint
models := internal/control/models

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## a job is killed and goes on, to the digit; needs only Go, takes under a minute
	@CGO_ENABLED=0 go run ./examples/adclicks demo

# The quick checks stand first, so that a slip is known in seconds. Nothing is
# left out quietly: what a machine can't do is the last line printed, and with
# CI=true it is a failure.
.PHONY: test
test: check lint cross race exact models-if kafka-it-if chaos-ci ## everything that must hold: unit, race, examples, crash, lint, arch, other systems, a real Kafka, a short chaos
	@$(MAKE) left-out

.PHONY: check
check: ## formatting, vet, and the rules of the tree
	@unformatted=$$(find . -path ./build -prune -o -name '*.go' -exec "$$(go env GOROOT)/bin/gofmt" -l {} +); \
	if [ -n "$$unformatted" ]; then echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go test -run '^Test(ImportsPointOneWay|LibraryLinksLittle|EpochIsPure|OnePackageDoc|Lengths)$$' ./internal/arch

.PHONY: fmt
fmt: ## format the code
	go fmt ./...

.PHONY: lint
lint: ## one run of the linters that tools/go.mod pins; the first builds them
	$(lint) run ./...

# The library, without connectors and command line, is built for systems that
# the tests don't run on.
library := . ./agg ./codec ./window ./weirtest

.PHONY: cross
cross: ## build the library for macOS, Windows and wasip1
	@for target in darwin/arm64 windows/amd64 wasip1/wasm; do \
	echo "build the library for $$target"; \
	CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} go build $(library); \
	done

# Every test: unit, examples and crash tests are ordinary tests.
.PHONY: race
race:
ifneq ($(cc),)
	CGO_ENABLED=1 go test -race -timeout 15m ./...
else
	CGO_ENABLED=0 go test -timeout 15m ./...
endif

# Tests that count allocations mean nothing under the race detector, and the
# crash tests take samples under it. Their packages run again without it: every
# effect is crashed then.
.PHONY: exact
exact:
ifneq ($(cc),)
	@packages=$$({ grep -rl --include='*_test.go' '^//go:build !race' . || true; } | xargs -r -n 1 dirname | sort -u); \
	if [ -z "$$packages" ]; then echo "no test counts allocations: where are they?" >&2; exit 1; fi; \
	echo go test -timeout 10m $$packages; \
	go test -timeout 10m $$packages
endif

.PHONY: chaos
chaos: ## kill -9 the real binary at random moments, 200 rounds over every kind and pair of sinks; then jobs on Kafka, brokers, connections
	go run ./internal/chaos -rounds $(chaos_rounds)
	go run ./internal/chaos/kafka

.PHONY: chaos-ci
chaos-ci: ## a tenth of the same
	go run ./internal/chaos -rounds $(chaos_ci_rounds)
ifneq ($(and $(kafka_tools),$(kcat)),)
	go run ./internal/chaos/kafka -kills 20 -zombies 2 -cuts 2 -mixed 3 -brokers 2 -cluster 2
endif

.PHONY: kafka
kafka: ## start a real Kafka broker on 127.0.0.1:19092, for development; needs java 17 and mvn
	@brokers=$$(tools/kafka/start build/kafka $(kafka_port)); \
	echo "Kafka runs on $$brokers, its data and log are in build/kafka. Try:"; \
	echo "  go run ./examples/kafkaclicks produce --brokers $$brokers --input clicks"; \
	echo "  go run ./examples/kafkaclicks run --brokers $$brokers --input clicks --output counts --state build/clicks --stop-at-end"; \
	echo "  KAFKA_BROKERS=$$brokers go test ./connector/kafka/..."; \
	echo "make kafka-stop stops it; the data stay until build/kafka is removed."

.PHONY: kafka-stop
kafka-stop: ## stop it
	@tools/kafka/stop build/kafka

# The suites that run on kfake in the inner loop, on a fresh broker of their own.
kafka_suites := ./connector/kafka/... $(if $(wildcard examples/kafkaclicks),./examples/kafkaclicks/...)

.PHONY: kafka-it
kafka-it: ## the Kafka connector's tests on a real broker, started for them; needs java 17 and mvn
	tools/kafka/with-broker build/kafka-it -- go test -count=1 -timeout 15m $(kafka_suites)

.PHONY: kafka-it-if
kafka-it-if:
ifneq ($(kafka_tools),)
	@$(MAKE) kafka-it
endif

.PHONY: bench
bench: ## what a record and a checkpoint cost, as ratios to a loop written by hand
	go run ./bench

.PHONY: models
models: ## check the protocol's models exhaustively; needs spin and a C compiler
	$(models)/run

.PHONY: models-if
models-if:
ifneq ($(and $(spin),$(cc)),)
	$(models)/run
endif

.PHONY: left-out
left-out:
ifeq ($(cc),)
	@echo "LEFT OUT: the race detector, because there is no C compiler (install gcc or clang)"
	@if [ "$${CI:-}" = true ]; then exit 1; fi
endif
ifeq ($(and $(spin),$(cc)),)
	@echo "LEFT OUT: the models, because spin or a C compiler is missing (install both, then make models)"
endif
ifeq ($(zstd),)
	@echo "LEFT OUT: files of the sink read by the zstd tool (install zstd)"
	@if [ "$${CI:-}" = true ]; then exit 1; fi
endif
ifeq ($(kafka_tools),)
	@echo "LEFT OUT: everything on a real Kafka broker, because java or mvn is missing (install a JRE 17 or later, and Maven)"
	@if [ "$${CI:-}" = true ]; then exit 1; fi
endif
ifeq ($(kcat),)
	@echo "LEFT OUT: topics read back by a client that is not ours, because kcat is missing (install kcat)"
	@if [ "$${CI:-}" = true ]; then exit 1; fi
endif
	@echo "make test: passed"
