# One RUN for each step: the first stage caches them one by one, and none of its layers is in the image.
# hadolint global ignore=DL3059

# Both bases need Python 3.11 or newer and glibc. BASE also needs Python's venv module. RUN_BASE needs no shell, but the
# same interpreter at the same path, to which the copied environment points.
# A tag, for builds of your own; a release gives a digest instead (docs/release.md).
ARG BASE=python:3.11-slim-bookworm
ARG RUN_BASE=${BASE}

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
WORKDIR /src
# Two environments: pip and hatchling stay in /build; /opt/gpu-watchdog gets no installer.
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/gpu-watchdog
# What rarely changes comes first. Only wheels: nothing is compiled, and no third-party setup code runs.
COPY requirements/build.txt requirements/run.txt requirements/
RUN /build/bin/pip install --require-hashes --only-binary=:all: --no-compile -r requirements/build.txt
RUN /build/bin/pip --python /opt/gpu-watchdog/bin/python install --report /build/installed.json \
      --require-hashes --only-binary=:all: --no-compile -r requirements/run.txt
# Which of the wheels that the lock file allows was installed, for the release's SBOM.
RUN /build/bin/python -c 'import json; each = [(i["metadata"], i["download_info"]["archive_info"]["hashes"]) for i in json.load(open("/build/installed.json"))["install"]]; print(*sorted("%s==%s --hash=sha256:%s" % (m["name"], m["version"], h["sha256"]) for m, h in each), sep="\n")' \
      > /opt/gpu-watchdog/wheels.txt
# Nearly all of the Kubernetes client is its asynchronous client and classes that are loaded only when used; the
# watchdog uses none of them (docs/release.md).
RUN client=$(echo /opt/gpu-watchdog/lib/python3*/site-packages/kubernetes) \
    && rm -r "$client/aio" && find "$client/client/api" "$client/client/models" -name '[!_]*.py' -delete \
    && /build/bin/pip --python /opt/gpu-watchdog/bin/python uninstall --yes --quiet \
         aiohttp aiohttp-retry aiohappyeyeballs aiosignal frozenlist multidict propcache yarl
COPY pyproject.toml README.md LICENSE ./
COPY watchdog watchdog
RUN SOURCE_DATE_EPOCH=315532800 /build/bin/python -m hatchling build -t wheel -d /dist
# Compiled here, since the root is read-only when it runs; by content, not by time, so that equal sources give equal
# bytes and copying does not invalidate them.
RUN /build/bin/pip --python /opt/gpu-watchdog/bin/python install --no-index --no-deps --no-compile /dist/*.whl \
    && /opt/gpu-watchdog/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/gpu-watchdog/lib \
    && /opt/gpu-watchdog/bin/gpu-watchdog --version

FROM ${RUN_BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpu-memory-watchdog" \
      org.opencontainers.image.source="https://gpu-memory-watchdog.example" \
      org.opencontainers.image.description="Per-node daemon that enforces the GPU memory which pods declare" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/gpu-watchdog /opt/gpu-watchdog
# The default policy, which only observes. A ConfigMap mounted at /etc/gpu-watchdog replaces it.
COPY config/policy.toml /etc/gpu-watchdog/policy.toml
# The NVIDIA runtime provides libnvidia-ml.so.1 because of the two NVIDIA_ variables; on GKE it is mounted here.
# One malloc arena for all threads: with one each, glibc keeps what every thread freed, 1 to 2 MiB on every node.
ENV PATH=/opt/gpu-watchdog/bin:$PATH \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64 \
    MALLOC_ARENA_MAX=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Root, because processes of any user must be signalled, and in a container CAP_KILL takes effect only for root.
# hadolint ignore=DL3002
USER 0:0
EXPOSE 9837
# Queries loopback at the port in GPU_WATCHDOG_LISTEN: set that, not --listen. Kubernetes has its own probes.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["/opt/gpu-watchdog/bin/python", "-c", "import os, urllib.request as u; port = os.environ.get('GPU_WATCHDOG_LISTEN', ':9837').rpartition(':')[2]; u.build_opener(u.ProxyHandler({})).open(f'http://127.0.0.1:{port}/healthz', timeout=3)"]
ENTRYPOINT ["gpu-watchdog"]
CMD ["run"]
