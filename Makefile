# Commands of the project. `make` alone lists them.

CARGO ?= cargo

# Everything is linked statically: what is in an image has no libraries beside it, and one set of flags means that what the
# tests, the lab and the images share is compiled once.
TARGET := $(shell rustc -vV | sed -n 's/^host: //p')
export CARGO_BUILD_TARGET := $(TARGET)
export CARGO_TARGET_$(shell echo $(TARGET) | tr 'a-z.-' 'A-Z__')_RUSTFLAGS := -C target-feature=+crt-static

# The lab and the programs of the images are built into the lab's cache: `quick` for a person who waits, `release` for
# measurements.
LAB_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/backuppodset-lab
lab = $(CARGO) run --quiet --profile $(1) --locked --target-dir $(LAB_CACHE)/target --package lab --bin lab --
LAB = $(call lab,quick)
FAST_LAB = $(call lab,release)

# Parts of `make lint`. Each runs alone, as `make lint-yaml`; the tools are installed into the lab's cache.
LINTS = form commits shell yaml markdown docker deny clippy alone doc

.DEFAULT_GOAL := help
.PHONY: help demo test test-threads explore bench down image generate plugin lint

# Behind `##`: minutes on two cores once everything is compiled, then what the command does.
help: ## 0 | List the commands, with minutes on two cores once everything is compiled
	@awk -F ':.*## | [|] ' '/^[a-z-]+:.*## / {printf "  make %-13s %4s min  %s\n", $$1, $$2, $$3}' $(MAKEFILE_LIST)

demo: ## 2 | Show the main job on a real cluster: the one in KUBECONFIG, else a local one that is started
	$(LAB) demo

test: ## 18 | Run every lint and test, and all of them even if one fails (ONLY=<part of a name>)
	$(CARGO) run --quiet --package suite -- $(LINTS:%=--lint lint-%) --lint test-threads $(ONLY:%=--only %)

test-threads: ## 1 | Run what threads share under schedules that a checker chooses
	$(CARGO) test --workspace --test threads --features backuppodset/shuttle,bps-agent/shuttle

explore: ## 60 | Search the large worlds of the failover protocol, in an optimised build (ARENA=<part of a name>: also huge ones)
	$(CARGO) test --release --package bps-protocol --test it -- --ignored --nocapture --test-threads 1
	$(CARGO) test --release --package bps-agent --test it turmoil -- --ignored --nocapture

bench: ## long | Measure on the local cluster and print the figures beside what they are compared with
	$(FAST_LAB) bench
	$(FAST_LAB) bench pairs
	$(FAST_LAB) bench placement

down: ## 1 | Stop the local cluster and remove everything it made
	$(LAB) down

image: ## 1 | Build the images and load them into the running local cluster
	$(LAB) images

plugin: ## 3 | Install the kubectl plugin of this checkout
	$(CARGO) install --locked --path crates/kubectl-bps

generate: ## 2 | Write the generated files: CRD, RBAC, flat manifest, reference
	UPDATE=1 $(CARGO) test --package backuppodset --test it -- generated reference

lint: $(LINTS:%=lint-%) ## 1 | Check form and common mistakes of sources, documents, manifests, scripts, dependencies and commits

lint-%:
	@CARGO='$(CARGO)' .ci/lint/run $*
