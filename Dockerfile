# The daemon with what requirements.lock pins, every file checked by its hash. BASE needs Python 3.11 or newer with venv.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN python3 -m venv /opt/autoscaler
WORKDIR /src
COPY requirements.lock ./
RUN /opt/autoscaler/bin/pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY scheduling scheduling
COPY providers providers
COPY autoscaler autoscaler
RUN /opt/autoscaler/bin/pip install --no-cache-dir --no-deps --no-build-isolation --no-index . \
    && /opt/autoscaler/bin/pip uninstall --yes setuptools pip

FROM ${BASE}
RUN useradd --uid 10001 --user-group --no-log-init --no-create-home --home-dir /var/lib/autoscaler autoscaler \
    && install --directory --owner=autoscaler --group=autoscaler --mode=0750 /var/lib/autoscaler
COPY --from=build /opt/autoscaler /opt/autoscaler
ENV PATH=/opt/autoscaler/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    AUTOSCALER_LISTEN=0.0.0.0:8080 \
    AUTOSCALER_REDIS_URL=embedded:/var/lib/autoscaler/redis
USER 10001:10001
WORKDIR /var/lib/autoscaler
VOLUME /var/lib/autoscaler
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/healthz', timeout=3)"]
ENTRYPOINT ["autoscaler"]
CMD ["serve", "--policy", "/etc/autoscaler/policy.yaml"]
