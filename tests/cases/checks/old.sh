exec python3 job.py --old "$@"
