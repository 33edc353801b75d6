# The operator's image, which is also what provides other images with Midflight (midflight-provide).
#
#   docker build -t midflight:0.1.0 .
#   docker build -t midflight-torch:0.1.0 --build-arg TORCH=2.13.0 .
#
# With TORCH it can run training jobs by itself. PyPI's torch has CUDA with it and makes 5 GB of the
# image; one for CPUs alone makes 1.2 GB. TORCH_INDEX is where that build of torch comes from, if not
# from where pip looks anyway.

#
# For a release give BASE a digest, so that nobody can exchange what is built on:
#
#   docker buildx imagetools inspect python:3.13-slim --format '{{.Manifest.Digest}}'
#   docker build --build-arg BASE=python:3.13-slim@sha256:... -t midflight:0.1.0 .
#
# What is installed is locked, with hashes (`make lock`); only TORCH is as the index has it.

ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ARG TORCH=
ARG TORCH_INDEX=
# A date of any kind makes Python check bytecode by content: some builders round times when they copy,
# and bytecode that goes by them would be out of date from the start.
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 SOURCE_DATE_EPOCH=1000000000
# Before 3.12 setuptools comes with it; torch asks for one if it wants one.
RUN python -m venv /opt/venv && /opt/venv/bin/pip uninstall -y setuptools
# torch is by far the largest: a step of its own, which a change of ours does not repeat.
RUN if [ -n "$TORCH" ]; then \
        /opt/venv/bin/pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$TORCH"; \
    fi
WORKDIR /source
COPY requirements requirements
RUN python -m venv /opt/build && /opt/build/bin/pip install --require-hashes -r requirements/build.txt \
    && /opt/venv/bin/pip install --require-hashes -r requirements/image.txt
# torch warns without numpy.
RUN if [ -n "$TORCH" ]; then \
        sed -n '/^numpy==/,/[^\\]$/p' requirements/dev.txt > /tmp/numpy.txt \
        && /opt/venv/bin/pip install --require-hashes -r /tmp/numpy.txt; \
    fi
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /tmp/wheel . \
    && /opt/venv/bin/pip install --no-deps --no-index /tmp/wheel/*.whl \
    && /opt/venv/bin/pip uninstall -y pip \
    && /opt/venv/bin/python requirements/sbom.py > /opt/venv/sbom.cdx.json

FROM ${BASE}
# What fetches the code of jobs, so that no image of somebody else's is given their passwords.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates git openssh-client rsync \
    && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 65532 midflight \
    && useradd --uid 65532 --gid 65532 --no-log-init --home-dir /home/midflight --create-home midflight
# The base's pip would install beside the environment, where nothing of it is found. An image built on
# this one gets a pip of its own with `python -m ensurepip`. The base comes without bytecode, and where
# the root cannot be written to, every start would compile the standard library again.
RUN pip uninstall -y --root-user-action=ignore pip setuptools wheel \
    && python -m compileall -q -x site-packages /usr/local/lib/python3*
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# By number, so that runAsNonRoot can be checked without reading the image.
USER 65532:65532
WORKDIR /home/midflight
ENTRYPOINT ["midflight"]
CMD ["--help"]
