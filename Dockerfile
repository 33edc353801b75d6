# The operator's image, which is also what provides other images with Midflight (midflight-provide).
#
#   docker build -t midflight:0.1.0 .
#   docker build -t midflight-torch:0.1.0 --build-arg TORCH=2.13.0 .
#
# With TORCH it can run training jobs by itself. TORCH_INDEX is where that build of torch comes from,
# if not from where pip looks anyway.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ARG TORCH=
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/venv
WORKDIR /source
COPY requirements/constraints.txt requirements/
# torch is by far the largest: a layer of its own, which a change of ours does not rebuild.
RUN if [ -n "$TORCH" ]; then \
        /opt/venv/bin/pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$TORCH" numpy; \
    fi
COPY pyproject.toml README.md LICENSE ./
COPY src src
# The constraints name a torch of their own, which is for working on Midflight.
RUN grep -v '^torch' requirements/constraints.txt > /tmp/constraints.txt \
    && /opt/venv/bin/pip install -c /tmp/constraints.txt '.[kubernetes]' \
    && /opt/venv/bin/pip uninstall -y pip

FROM python:${PYTHON}-slim
RUN groupadd --gid 65532 midflight \
    && useradd --uid 65532 --gid 65532 --no-log-init --home-dir /home/midflight --create-home midflight
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# By number, so that runAsNonRoot can be checked without reading the image.
USER 65532:65532
WORKDIR /home/midflight
ENTRYPOINT ["midflight"]
CMD ["--help"]
