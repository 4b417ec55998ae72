# The job of examples/kubernetes: GRPO on tasks of reasoning-gym, with nothing but numpy and CUDA's driver API. An RL image of
# your own needs only `pip install timeslice`. In the root of the repository:
#   docker build -f deployments/images/example-job.Dockerfile -t REPOSITORY:TAG .
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
WORKDIR /src
COPY . .
RUN python -m venv /build && python -m venv /opt/job \
 && python deployments/images/pinned.py hatchling > /build/pins \
 && /build/bin/pip install --no-cache-dir --no-deps --require-hashes -r /build/pins \
 && /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index -w /build/wheel . \
 && python deployments/images/pinned.py timeslice numpy pyyaml --alone reasoning-gym > /build/pins \
 && /opt/job/bin/pip install --no-cache-dir --no-deps --require-hashes -r /build/pins \
 && /opt/job/bin/pip install --no-cache-dir --no-deps --no-index /build/wheel/*.whl

FROM ${BASE}
COPY --from=build /opt/job /opt/job
COPY hack/demo_app/grpo /opt/timeslice/job/grpo
ENV PATH=/opt/job/bin:$PATH PYTHONPATH=/opt/timeslice/job PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["python3", "-m", "grpo"]
