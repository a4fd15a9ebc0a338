# syntax=docker/dockerfile:1
# Four images from one build, each a single static program on nothing:
#   docker build --target operator -t bps-operator:0.1.0 .
#   docker build --target wakeup   -t bps-wakeup:0.1.0   .
#   docker build --target agent    -t bps-agent:0.1.0    .
#   docker build --target extender -t bps-extender:0.1.0 .

# Alpine's C library is musl, which links statically. The target is named, although it is the host, so that the
# flag does not reach procedural macros: those must stay shared libraries. Each program is built by itself: in one build
# all would have the features of their dependencies that any of them wants.
FROM rust:1.95-alpine AS build
RUN apk add --no-cache musl-dev
WORKDIR /src
COPY . .
ENV RUSTFLAGS="-C target-feature=+crt-static"
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(rustc -vV | sed -n 's/^host: //p')" \
    && cargo build --locked --profile dist --target "$target" --package backuppodset --bin bps-operator \
    && cargo build --locked --profile dist --target "$target" --package bps-wakeup \
    && cargo build --locked --profile dist --target "$target" --package bps-agent \
    && cargo build --locked --profile dist --target "$target" --package bps-extender \
    && for program in bps-operator bps-wakeup bps-agent bps-extender; do \
         if readelf -d "target/$target/dist/$program" | grep NEEDED; then exit 1; fi; \
         install -D -m 0755 -t /out "target/$target/dist/$program"; \
       done

FROM scratch AS wakeup
LABEL org.opencontainers.image.title="bps-wakeup" \
      org.opencontainers.image.description="Holds cold backup Pods back until a signed ticket arrives" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/bps-wakeup /bps-wakeup
USER 65532:65532
ENTRYPOINT ["/bps-wakeup"]

FROM scratch AS agent
LABEL org.opencontainers.image.title="bps-agent" \
      org.opencontainers.image.description="Runs an application only while its Pod is the active one of its pair" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/bps-agent /bps-agent
USER 65532:65532
ENTRYPOINT ["/bps-agent"]

FROM scratch AS extender
LABEL org.opencontainers.image.title="bps-extender" \
      org.opencontainers.image.description="Scores nodes for kube-scheduler by the balance of their resources" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/bps-extender /bps-extender
USER 65532:65532
ENTRYPOINT ["/bps-extender"]

FROM scratch AS operator
LABEL org.opencontainers.image.title="bps-operator" \
      org.opencontainers.image.description="Keeps primary, hot backup and cold backup Pods" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/bps-operator /bps-operator
USER 65532:65532
ENTRYPOINT ["/bps-operator"]
