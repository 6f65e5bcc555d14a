exec python3 job.py --new "$@"
