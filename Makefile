# Commands of the project. `make` alone lists them.

CARGO ?= cargo
LAB = $(CARGO) run --quiet --package lab --bin lab --

# Measurements come from an optimised build. It shares its dependencies with the static binaries of the images,
# because both are built with the same flags into the same directory of the lab's cache.
LAB_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/backuppodset-lab
TARGET := $(shell rustc -vV | sed -n 's/^host: //p')
STATIC = CARGO_TARGET_$(shell echo $(TARGET) | tr 'a-z-' 'A-Z_')_RUSTFLAGS='-C target-feature=+crt-static'
FAST_LAB = $(STATIC) $(CARGO) run --quiet --release --locked --target $(TARGET) --target-dir $(LAB_CACHE)/target --package lab --bin lab --

# Parts of `make lint`. Each runs alone, as `make lint-yaml`; the tools are installed into the lab's cache.
LINTS = form commits shell yaml markdown docker deny clippy doc

.DEFAULT_GOAL := help
.PHONY: help demo test explore bench down image generate lint

# Behind `##`: minutes on two cores once everything is compiled, then what the command does.
help: ## 0 | List the commands, with minutes on two cores once everything is compiled
	@awk -F ':.*## | [|] ' '/^[a-z]+:.*## / {printf "  make %-10s %4s min  %s\n", $$1, $$2, $$3}' $(MAKEFILE_LIST)

demo: ## ? | Show the main job on a real cluster: the one in KUBECONFIG, else a local one that is started
	$(LAB) demo

test: ## ? | Run every lint and test: decisions, conversation with a simulated API server, real cluster (ONLY=<part of a name>)
	$(CARGO) run --quiet --package suite -- $(LINTS:%=--lint lint-%) $(ONLY:%=--only %)

explore: ## 60 | Search the large worlds of the failover protocol, in an optimised build (ARENA=<part of a name>: also huge ones)
	$(CARGO) test --release --package backuppodset --test handover -- --ignored --nocapture --test-threads 1
	$(CARGO) test --release --package backuppodset --test turmoil -- --ignored --nocapture

bench: ## ? | Measure on the local cluster and print the figures beside what they are compared with
	$(FAST_LAB) bench
	$(FAST_LAB) bench pairs

down: ## ? | Stop the local cluster and remove everything it made
	$(LAB) down

image: ## ? | Build the images and load them into the running local cluster
	$(LAB) images

generate: ## ? | Write the generated files: CRD, RBAC, flat manifest, reference
	UPDATE=1 $(CARGO) test --package backuppodset --test generated --test reference

lint: $(LINTS:%=lint-%) ## ? | Check form and common mistakes

lint-%:
	@CARGO='$(CARGO)' .ci/lint/run $*
