# The base of both stages: any image with Python 3.11 or newer, its venv module and glibc. It must be the same in both,
# since the environment that is copied points to the interpreter that made it.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# Two environments: pip and hatchling stay in /build, /opt/gpu-watchdog gets no installer at all.
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/gpu-watchdog
# What changes seldom comes first. Wheels alone: nothing is compiled, no foreign setup code runs.
COPY requirements/build.txt requirements/run.txt requirements/
RUN /build/bin/pip install --require-hashes --only-binary=:all: -r requirements/build.txt
RUN /build/bin/pip --python /opt/gpu-watchdog/bin/python install \
      --require-hashes --only-binary=:all: -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY watchdog watchdog
RUN /build/bin/python -m hatchling build -t wheel -d /dist
RUN /build/bin/pip --python /opt/gpu-watchdog/bin/python install --no-index --no-deps /dist/*.whl \
    && /opt/gpu-watchdog/bin/gpu-watchdog --version

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpu-memory-watchdog" \
      org.opencontainers.image.description="Per-node daemon that enforces the GPU memory which pods declare" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/gpu-watchdog /opt/gpu-watchdog
# The policy that ships: it only observes. A ConfigMap mounted over /etc/gpu-watchdog takes its place.
COPY config/policy.toml /etc/gpu-watchdog/policy.toml
# The NVIDIA runtime puts libnvidia-ml.so.1 in by itself, asked by the two NVIDIA_ variables; on GKE it is mounted here.
ENV PATH=/opt/gpu-watchdog/bin:$PATH \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Root, because processes of any user have to be signalled: CAP_KILL, added to a container, takes effect for root alone.
USER 0:0
EXPOSE 9837
# Looks at loopback, at the port of GPU_WATCHDOG_LISTEN: set that rather than --listen. Kubernetes has its own probes.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["/opt/gpu-watchdog/bin/python", "-c", "import os, urllib.request as u; port = os.environ.get('GPU_WATCHDOG_LISTEN', ':9837').rpartition(':')[2]; u.build_opener(u.ProxyHandler({})).open(f'http://127.0.0.1:{port}/healthz', timeout=3)"]
ENTRYPOINT ["gpu-watchdog"]
CMD ["run"]
