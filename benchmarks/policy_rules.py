"""What a policy file with many rules costs: reading it once, and a kernel's first look at it.

python benchmarks/policy_rules.py [RULES]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from whet.engine.policy.reading import read_policy

KINDS = {
    "names": 'match = "kernel_{n}"',
    "modules and names": 'match = "fla.ops.m{n}:kernel_{n}"',
    "patterns of names": 'match = "fla.ops.*:chunk_{n}_*"',
    "patterns of modules": 'match = "fla.ops.m{n}.*:*"',
    "infixes": 'match = "*_{n}_*"',
}


def rules(match: str, count: int) -> str:
    text = f'[[kernel]]\n{match}\nmode = "cached"\nbuckets = {{ T = "pow2" }}\n\n'
    return "".join(text.replace("{n}", str(n)) for n in range(count))


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(f"{count:,} rules             read    index  first look (median, max of 240 kernels)")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "whet.toml")
        for kind, match in KINDS.items():
            path.write_text(rules(match, count))
            start = time.perf_counter()
            policy = read_policy(path)
            read = time.perf_counter()
            policy.rulings("none", ["none"])
            indexed = time.perf_counter()
            looks = []
            for n in range(240):
                before = time.perf_counter()
                policy.rulings(f"chunk_{n}_fwd_kernel", [f"fla.ops.m{n}.chunk"])
                looks.append(1e3 * (time.perf_counter() - before))
            print(
                f"{kind:20} {1e3 * (read - start):6.0f} ms {1e3 * (indexed - read):4.0f} ms  "
                f"{statistics.median(looks):.3f} ms, {max(looks):.3f} ms"
            )


if __name__ == "__main__":
    main()
