# SelPE in a container: no compiler, no root, no network when it runs.
#
#   docker build -t selpe .                    with the default models inside (some 400 MB more)
#   docker build -t selpe --target bare .      without; mount a folder of models at /models
#
# Everything from the package index is locked by hash. For a base that cannot change either, name it by digest:
#   docker build --build-arg BASE=python@sha256:… .
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 SOURCE_DATE_EPOCH=1704067200
WORKDIR /source
COPY requirements/selpe.lock requirements/build.lock requirements/
RUN python -m venv /opt/selpe \
 && /opt/selpe/bin/pip install --only-binary :all: --require-hashes -r requirements/selpe.lock \
 && python -m pip install --root-user-action ignore --only-binary :all: --require-hashes -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY examples examples
RUN python -m hatchling build -t wheel -d /wheel \
 && /opt/selpe/bin/pip install --no-deps --no-index /wheel/*.whl \
 && /opt/selpe/bin/pip check

FROM ${BASE} AS bare
COPY --from=build /opt/selpe /opt/selpe
RUN groupadd --gid 10001 selpe \
 && useradd --uid 10001 --gid selpe --no-log-init --create-home selpe \
 && install -d -o selpe -g selpe /data /models
# Ledger and key lie beside the data, in the folder that has to be mounted anyway: they outlive the container.
ENV PATH=/opt/selpe/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SELPE_CACHE=/models \
    SELPE_LEDGER=/data/.selpe/ledgers \
    SELPE_KEY=/data/.selpe/ledger.key \
    SELPE_OFFLINE=1
USER selpe
WORKDIR /data
ENTRYPOINT ["selpe"]
CMD ["--help"]

FROM bare AS complete
# `doctor` converts the model, so that nothing is written to /models later on. The store notices files that changed by
# their time, of which an image keeps whole seconds: so they get one, and the hashes of the weights and of the converted
# model are checked once more. Whoever the container runs as (`--user`) may read it.
RUN SELPE_OFFLINE=0 selpe models pull smollm2 minilm \
 && selpe doctor \
 && find /models -type f -exec touch --date=@1704067200 {} + \
 && selpe models verify \
 && chmod -R go+rX /models
