# docker build -t fedbench .                                 torch for the CPU
# docker build -t fedbench --build-arg TORCH=cu126 .         torch for CUDA 12.6
# docker run --rm -v "$PWD:/work" fedbench run quickstart    results go to ./results
FROM python:3.12.12-slim-bookworm

ARG TORCH=cpu
RUN pip install --no-cache-dir torch --index-url "https://download.pytorch.org/whl/${TORCH}"
COPY . /src
RUN pip install --no-cache-dir "/src[plots]" && rm -rf /src

RUN useradd --create-home --uid 1000 fedbench && mkdir /work && chown fedbench /work
USER fedbench
WORKDIR /work
ENV FEDBENCH_CACHE=/work/.cache
RUN fedbench --version && fedbench methods > /dev/null

ENTRYPOINT ["fedbench"]
CMD ["--help"]
