"""Prints the provenance of a release: provenance.py VERSION COMMIT SOURCES FOLDER

A statement of in-toto v1 with the predicate of SLSA v1 (https://slsa.dev/spec/v1.0/provenance), without a signature.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys


def digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def says(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    version, commit, sources, folder = sys.argv[1:]
    root, release = pathlib.Path(sources), pathlib.Path(folder)
    changed = says("git", "-C", sources, "status", "--porcelain", "--untracked-files=no")
    locks = ["Cargo.lock", "ui/package-lock.json"]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": file.name, "digest": {"sha256": digest(file)}} for file in sorted(release.iterdir())
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://phalanx.dev/release/make/v1",
                "externalParameters": {"command": "make release", "version": version},
                "internalParameters": {
                    "rustc": says("rustc", "--version"),
                    # A release of sources that differ from the commit says so.
                    "changedFiles": changed.splitlines(),
                },
                "resolvedDependencies": [
                    {"uri": "git+phalanx", "digest": {"gitCommit": commit}},
                    *({"uri": lock, "digest": {"sha256": digest(root / lock)}} for lock in locks),
                ],
            },
            "runDetails": {
                "builder": {"id": os.environ.get("RELEASE_BUILDER", "https://phalanx.dev/release/by-hand")},
            },
        },
    }
    print(json.dumps(statement, indent=2))


if __name__ == "__main__":
    main()
