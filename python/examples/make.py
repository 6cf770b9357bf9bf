"""Writes the notebooks from the cells below: `python3 make.py`. Needs nothing beside the standard library."""

import json
from pathlib import Path
from typing import Any, Dict, List

FIRST_JOB = [
    "# A first job\nSubmit a gang of ranks, follow its output, and look at the cluster.\n\n"
    "Start a daemon first (`phalanx up --detach`), or set `PHALANX_URL` and `PHALANX_TOKEN`.",
    "!from phalanx import Cluster\n\ncluster = Cluster.connect()\ncluster",
    "## Where would it start?\nA dry run submits nothing.",
    '!cluster.dry_run(["true"], gpus=4, nodes=2)',
    "## Submit\n`gpus` counts the GPUs of the whole job. Each GPU has a rank.",
    '!job = cluster.submit("echo rank $RANK of $WORLD_SIZE on $PHALANX_NODE", name="first", gpus=4, nodes=2)\njob',
    "!for entry in job.logs():\n    print(entry)",
    "!job.wait(timeout=60, check=True)\nassert job.exit_code == 0\njob.events()",
    "## Why does a job wait?",
    '!waiting = cluster.submit(["true"], name="held", gpus=8, hold=True)\nwaiting.why()',
    "!waiting.release()\nwaiting.wait(timeout=60)",
    "## The cluster",
    "!cluster.nodes()",
    "!cluster.queues()",
    "!cluster.jobs(finished=True, limit=10)",
    '!cluster.bill(by=["user", "queue"])',
    "!cluster.close()",
]

SWEEP = [
    "# A sweep of functions\n`@phalanx.gang` runs a function as a job. The function imports its own modules, and takes "
    "and returns values that JSON can hold.",
    "!import asyncio\n\nimport phalanx\n\ncluster = phalanx.Cluster.connect()",
    "!@phalanx.gang(gpus=1, cluster=cluster)\ndef loss(rate, steps):\n    import math\n\n    weight = 4.0\n"
    "    for _ in range(steps):\n        weight -= rate * 2 * weight\n"
    '    return {"rate": rate, "loss": weight * weight if math.isfinite(weight) else None}',
    "A call runs it here; `submit` runs it as a job. The jobs below run side by side.",
    "!loss(0.1, 3)",
    "!jobs = [loss.submit(rate, 20) for rate in (0.01, 0.1, 0.3)]\nresults = [job.result(timeout=60) for job in jobs]\n"
    'best = min(results, key=lambda result: result["loss"])\nassert best["rate"] == 0.3\nresults',
    "The client refuses a function that cannot be shipped, and submits nothing:",
    "!@phalanx.gang(gpus=1, cluster=cluster)\ndef uses_cluster():\n    return cluster.url\n\n\ntry:\n"
    "    uses_cluster.submit()\nexcept phalanx.NotShippable as error:\n    print(error)",
    "## Follow several jobs at once",
    "!async def first_lines(count):\n    async with await phalanx.AsyncCluster.connect() as cluster:\n"
    '        texts = [f"echo job {n}" for n in range(count)]\n'
    "        jobs = await asyncio.gather(*(cluster.submit(text, gpus=1) for text in texts))\n"
    "        await asyncio.gather(*(job.wait(60) for job in jobs))\n"
    "        lines = []\n"
    "        for job in jobs:\n            lines.append([entry.line async for entry in job.logs()])\n"
    "        return lines",
    "!# In Jupyter, write `await first_lines(3)`; its event loop runs already.\nimport threading\n\nlines = []\n"
    "thread = threading.Thread(target=lambda: lines.extend(asyncio.run(first_lines(3))))\n"
    "thread.start()\nthread.join(120)\n"
    'assert lines == [["job 0"], ["job 1"], ["job 2"]]\nlines',
    "!cluster.close()",
]


def notebook(cells: List[str]) -> Dict[str, Any]:
    return {
        "cells": [cell(number, text) for number, text in enumerate(cells, 1)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def cell(number: int, text: str) -> Dict[str, Any]:
    """A cell of code if the text begins with `!`, else of prose."""
    is_code = text.startswith("!")
    source = text.lstrip("!").splitlines(keepends=True)
    made: Dict[str, Any] = {"id": f"cell-{number}", "cell_type": "code" if is_code else "markdown", "metadata": {}}
    if is_code:
        made.update(execution_count=None, outputs=[])
    return {**made, "source": source}


def texts() -> Dict[str, str]:
    made = {"first-job.ipynb": notebook(FIRST_JOB), "function-sweep.ipynb": notebook(SWEEP)}
    return {name: json.dumps(of, indent=1, ensure_ascii=False) + "\n" for name, of in made.items()}


if __name__ == "__main__":
    for name, text in texts().items():
        (Path(__file__).parent / name).write_text(text, encoding="utf-8")
