#!/usr/bin/env bash
# One encoder, one prefill and one decode instance behind a proxy. springtide carries the encoder outputs, a KV
# connector of vLLM what the prefill instance makes:
#
#     MODEL=Qwen/Qwen2.5-VL-3B-Instruct CONFIG=examples/tcp.json examples/disagg_1e1p1d.sh [bench]
#
# KV_PRODUCER and KV_CONSUMER are the two instances' --kv-transfer-config; by default NIXL's, for GPUs (not tried
# here). vLLM's connector over files runs on CPU too (`just e2e` runs it), but is no faster than prefilling again:
#
#     FILES='"kv_connector": "ExampleConnector", "kv_connector_extra_config": {"shared_storage_path": "/tmp/kv"}'
#     KV_PRODUCER="{$FILES, \"kv_role\": \"kv_producer\"}" KV_CONSUMER="{$FILES, \"kv_role\": \"kv_consumer\"}"
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

default='{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
store
CUDA_VISIBLE_DEVICES=${ENCODER_GPU:-0} instance encoder "${ENCODER_PORT:-8101}" ec_producer
CUDA_VISIBLE_DEVICES=${PREFILL_GPU:-1} instance prefill "${PREFILL_PORT:-8102}" ec_consumer \
    --kv-transfer-config "${KV_PRODUCER:-$default}"
CUDA_VISIBLE_DEVICES=${DECODER_GPU:-2} instance decoder "${DECODER_PORT:-8103}" ec_consumer \
    --kv-transfer-config "${KV_CONSUMER:-$default}"
ready "${ENCODER_PORT:-8101}" "${PREFILL_PORT:-8102}" "${DECODER_PORT:-8103}"
launch proxy python3 -m springtide.proxy --port "${PORT:-8000}" --encoder "http://127.0.0.1:${ENCODER_PORT:-8101}" \
    --prefill "http://127.0.0.1:${PREFILL_PORT:-8102}" --decoder "http://127.0.0.1:${DECODER_PORT:-8103}"
ready "${PORT:-8000}"

if [[ ${1:-} == bench ]]; then
    benchmark "${PORT:-8000}"
else
    echo "ready on http://127.0.0.1:${PORT:-8000}; interrupt to end"
    wait -n
fi
