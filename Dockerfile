# The operator's image, which is also what provides other images with Midflight (midflight-provide).
#
#   docker build -t midflight:0.1.0 .
#   docker build -t midflight-torch:0.1.0 --build-arg TORCH=2.13.0 .
#
# With TORCH it can run training jobs by itself. PyPI's torch has CUDA with it and makes 5 GB of the
# image; one for CPUs alone makes 1.2 GB. TORCH_INDEX is where that build of torch comes from, if not
# from where pip looks anyway.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
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
COPY requirements/constraints.txt requirements/
COPY pyproject.toml README.md LICENSE ./
COPY src src
# The constraints name a torch of their own, which is for working on Midflight.
RUN grep -v '^torch' requirements/constraints.txt > /tmp/constraints.txt \
    && /opt/venv/bin/pip install -c /tmp/constraints.txt ${TORCH:+numpy} '.[kubernetes]' \
    && /opt/venv/bin/pip uninstall -y pip

FROM python:${PYTHON}-slim
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
