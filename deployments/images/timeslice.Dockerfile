# Node, orchestrator and command line in one image. In the root of the repository:
#   docker build -f deployments/images/timeslice.Dockerfile -t REPOSITORY:TAG .
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
WORKDIR /src
COPY . .
RUN python -m venv /build && python -m venv /opt/timeslice \
 && python deployments/images/pinned.py hatchling > /build/pins \
 && /build/bin/pip install --no-cache-dir --no-deps --require-hashes -r /build/pins \
 && /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --no-index -w /build/wheel . \
 && python deployments/images/pinned.py 'timeslice[node,orchestrator]' > /build/pins \
 && /opt/timeslice/bin/pip install --no-cache-dir --no-deps --require-hashes -r /build/pins \
 && /opt/timeslice/bin/pip install --no-cache-dir --no-deps --no-index /build/wheel/*.whl \
 && /opt/timeslice/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/timeslice/lib

FROM ${BASE}
COPY --from=build /opt/timeslice /opt/timeslice
# The host's NVIDIA driver is at /driver-root, and may come after this container has started. Its folder of libraries cannot be
# searched as it is, for the host's C library is there too: these are links to the only two that are wanted, in each place where
# distributions have them. The dynamic linker passes over those that lead nowhere.
RUN for place in usr/lib64 usr/lib/x86_64-linux-gnu usr/lib/x86_64-linux-gnu/nvidia/current lib64 lib/x86_64-linux-gnu; do \
      mkdir -p "/opt/driver/$place" \
      && ln -s "/driver-root/$place/libcuda.so.1" "/driver-root/$place/libnvidia-ml.so.1" "/opt/driver/$place/" || exit 1; \
    done
ENV PATH=/opt/timeslice/bin:$PATH \
    LD_LIBRARY_PATH=/opt/driver/usr/lib64:/opt/driver/usr/lib/x86_64-linux-gnu:/opt/driver/usr/lib/x86_64-linux-gnu/nvidia/current:/opt/driver/lib64:/opt/driver/lib/x86_64-linux-gnu \
    PYTHONUNBUFFERED=1
# The node's pod runs as root, by its own word; everything else needs no rights.
USER 65532:65532
ENTRYPOINT ["timeslice"]
CMD ["--help"]
