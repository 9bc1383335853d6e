# shellcheck shell=bash
# What the examples share: instances that are started, waited for and ended together.

MODEL=${MODEL:-Qwen/Qwen2.5-VL-3B-Instruct}
# Connector settings: disk.json, tcp.json or rdma.json beside this file, or one of yours.
CONFIG=${CONFIG:-$(dirname "${BASH_SOURCE[0]}")/disk.json}
LOGS=${LOGS:-/tmp/springtide-example}
# How long an instance may take to load its model.
LIMIT_S=${LIMIT_S:-1200}
# More flags for every instance.
read -ra FLAGS <<<"${VLLM_FLAGS:-}"

pids=()
mkdir -p "$LOGS"

finish() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait
}
trap finish EXIT

# launch NAME COMMAND...: runs a program with a log of its own.
launch() {
    local name=$1
    shift
    "$@" >"$LOGS/$name.log" 2>&1 &
    pids+=("$!")
    echo "$name: pid $!, log $LOGS/$name.log"
}

# instance NAME PORT EC_ROLE FLAG...: an instance of vLLM with the connector. What an instance lends to the
# store it lends as an encoder; a consumer lends nothing.
instance() {
    local name=$1 port=$2 role=$3 transfer
    shift 3
    transfer=$(python3 - "$CONFIG" "$role" <<'END'
import json, sys
path, role = sys.argv[1:]
settings = json.load(open(path))
if role == "ec_consumer" and "mooncake" in settings["store"]:
    settings["store"]["mooncake"]["segment_bytes"] = 0
print(json.dumps({"ec_connector": "SpringtideConnector", "ec_role": role, "ec_connector_extra_config": settings}))
END
    )
    launch "$name" python3 -m vllm.entrypoints.openai.api_server --model "$MODEL" --host 127.0.0.1 \
        --port "$port" --shutdown-timeout 5 --ec-transfer-config "$transfer" "${FLAGS[@]}" "$@"
}

# ready PORT...: waits until each answers; ends the example if one of its programs has ended.
ready() {
    local port pid deadline=$((SECONDS + LIMIT_S))
    for port in "$@"; do
        until curl --silent --fail --output /dev/null "http://127.0.0.1:$port/health"; do
            for pid in "${pids[@]}"; do
                kill -0 "$pid" 2>/dev/null || { echo "a program has ended: see $LOGS" >&2; exit 1; }
            done
            ((SECONDS < deadline)) || { echo "nothing answers on port $port: see $LOGS" >&2; exit 1; }
            sleep 1
        done
    done
}

# store: starts a mooncake_master if the configuration names one on this machine.
store() {
    local port
    port=$(python3 -c 'import json, sys
store = json.load(open(sys.argv[1]))["store"]
print(store.get("mooncake", {}).get("master", "").removeprefix("127.0.0.1:"))' "$CONFIG")
    if [[ $port =~ ^[0-9]+$ ]]; then
        launch master mooncake_master --rpc_port="$port"
    fi
}

# benchmark PORT: requests with images against the proxy.
benchmark() {
    vllm bench serve --backend openai-chat --endpoint /v1/chat/completions --base-url "http://127.0.0.1:$1" \
        --model "$MODEL" --dataset-name random-mm --random-input-len 64 --random-output-len 32 \
        --random-mm-base-items-per-request 1 --random-mm-limit-mm-per-prompt '{"image": 2, "video": 0}' \
        --random-mm-bucket-config '{(560, 560, 1): 1.0}' --num-prompts 100 --request-rate 2
}
