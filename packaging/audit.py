"""Look up known vulnerabilities of what a bill of materials names (packaging/make_sbom.py).

``pip-audit`` asks a service, PyPI's by default. The exit status is 1 for a known vulnerability.
Where the service cannot be reached, or does not know a package, nothing has been found out: that is
said, and is no failure, since it says nothing about stompkit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

_MOST_S: Final = 180.0


def ask(pins: list[str], service: str) -> Any:
    """What pip-audit says of packages, ``None`` where it could not ask."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requirements.txt"
        path.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(path), "--no-deps"]
        command += ["--disable-pip", "--progress-spinner=off", "--format=json"]
        command += ["--vulnerability-service", service]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_S)
            return json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            print(f"no answer within {_MOST_S:g} seconds")
        except ValueError:
            print("\n".join(done.stderr.strip().splitlines()[-1:]) or "pip-audit said nothing")
    return None


def main() -> int:
    """Read the command line and the bill, and ask; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bill", type=Path, metavar="FILE", help="the bill of materials")
    parser.add_argument("--service", default="pypi", choices=("pypi", "osv"))
    given = parser.parse_args()
    components = json.loads(given.bill.read_text(encoding="utf-8"))["components"]
    answer = ask([f"{each['name']}=={each['version']}" for each in components], given.service)
    if answer is None:
        print(f"NOT AUDITED: nothing is known of {len(components)} packages")
        return 0
    dependencies = answer["dependencies"]
    unknown = [each["name"] for each in dependencies if "skip_reason" in each]
    found = [(each, vuln) for each in dependencies for vuln in each.get("vulns", [])]
    for package, vulnerability in found:
        fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}")
    if unknown:
        print(f"NOT AUDITED, since the service does not know them: {', '.join(unknown)}")
    print(f"{len(dependencies) - len(unknown)} packages audited, {len(found)} vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
