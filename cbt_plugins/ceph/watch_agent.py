"""Runs on the head node: asks one `ceph` process for status and df, over and over, and prints both as one JSON line.

Standard library only. One process and one connection for the whole phase: a new `ceph` for every sample would cost
0.2 s of CPU each. Ends when standard input closes, with the process that it started.
"""

import json
import select
import subprocess
import sys
import time


def ask(process, question):
    process.stdin.write(question + b"\n")
    process.stdin.flush()
    decoder, text = json.JSONDecoder(), ""
    while True:
        row = process.stdout.readline()
        if not row:
            raise EOFError
        text += row.decode()
        try:
            return decoder.raw_decode(text.strip().lstrip("ceph> "))[0]
        except ValueError:
            continue


def main(command, interval):
    process = subprocess.Popen(
        ["/bin/sh", "-c", "exec " + command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            begun = time.time()
            status, df = ask(process, b"status"), ask(process, b"df")
            print(json.dumps({"t": time.time(), "status": status, "df": df}, separators=(",", ":")), flush=True)
            if select.select([sys.stdin], [], [], max(0.05, begun + interval - time.time()))[0]:
                return
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
