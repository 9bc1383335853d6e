#!/usr/bin/env bash
# One encoder and one prefill/decode instance behind a proxy:
#
#     MODEL=Qwen/Qwen2.5-VL-3B-Instruct CONFIG=examples/tcp.json examples/disagg_1e1pd.sh [bench]
#
# With `bench` it runs `vllm bench serve` against the proxy and ends; otherwise it serves on port 8000 until it
# is interrupted. On machines with several GPUs, ENCODER_GPU and DECODER_GPU say which.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

store
CUDA_VISIBLE_DEVICES=${ENCODER_GPU:-0} instance encoder "${ENCODER_PORT:-8101}" ec_producer
CUDA_VISIBLE_DEVICES=${DECODER_GPU:-1} instance decoder "${DECODER_PORT:-8102}" ec_consumer
ready "${ENCODER_PORT:-8101}" "${DECODER_PORT:-8102}"
launch proxy python3 -m springtide.proxy --port "${PORT:-8000}" \
    --encoder "http://127.0.0.1:${ENCODER_PORT:-8101}" --decoder "http://127.0.0.1:${DECODER_PORT:-8102}"
ready "${PORT:-8000}"

if [[ ${1:-} == bench ]]; then
    benchmark "${PORT:-8000}"
else
    echo "ready on http://127.0.0.1:${PORT:-8000}; interrupt to end"
    wait -n
fi
