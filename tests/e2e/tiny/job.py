"""A job that works, or dies of something that no signature knows."""

import argparse


def look_up(table: dict[str, int], name: str) -> int:
    """Fails where the name is new."""
    return table[name]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", default="known")
    print(look_up({"known": 1}, parser.parse_args().table))
