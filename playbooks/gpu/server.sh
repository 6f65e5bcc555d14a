# A server of sglang on a GPU. PORT comes from the playbook; the rest is the same in all of them.
#
# One captured batch size, and not the three dozen of sglang's choice: each is compiled by itself. Without a bound on
# the tokens, the KV cache alone would take most of the device, on which playbooks run side by side.
export HF_HUB_OFFLINE=1
home=$HOME/.cache/bisect-agent/gpu
exec "$home/sglang/bin/python" -m sglang.launch_server --model-path "$home/models/mla" --load-format dummy \
  --attention-backend triton --sampling-backend pytorch --grammar-backend none --cuda-graph-bs-decode 1 \
  --mem-fraction-static 0.08 --max-total-tokens 20000 --max-running-requests 8 --port "$PORT" "$@"
