# A server of sglang on a CPU. PORT comes from the playbook; the rest is the same in all of them.
#
# Without a bound on the tokens, the KV cache alone would take most of the memory of the host.
export HF_HUB_OFFLINE=1 SGLANG_USE_CPU_ENGINE=1
home=$HOME/.cache/bisect-agent/sglang-cpu
exec "$home/sglang/bin/python" -m sglang.launch_server --model-path "$home/models/tiny" --load-format dummy \
  --device cpu --attention-backend torch_native --max-total-tokens 20000 --max-running-requests 8 \
  --port "$PORT" "$@"
