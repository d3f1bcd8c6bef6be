"""TensorBoard: a folder of event files for each cell, under `tensorboard/` next to the suite's folder.

`fedbench run SUITE --tracker tensorboard`, then `tensorboard --logdir results/tensorboard`. FEDBENCH_TENSORBOARD names
another folder. A scalar for each number of a round, the manifest as hyperparameters, the report next to the files, for
TensorBoard knows no artefacts. Records are written by TensorBoard's own writer of records, in the process that computes
the cell and without a thread; the file is open for as long as it is written to. A cell that resumes, or starts over,
begins a file which says from which step on TensorBoard is to forget the earlier ones.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from fedbench import hookimpl
from fedbench.disk import write_atomically
from fedbench_plugins.trackers.following import REPORT, WELL, ReportedOnce, named, of_round, parameters, report

VARIABLE = "FEDBENCH_TENSORBOARD"

NEEDS = "tensorboard"  # the package
reported_once = ReportedOnce("tensorboard")
_files: dict[str, Path] = {}  # by cell's folder, of this process


def logs(folder: str) -> Path:
    """Where the event files of a suite's folder lie."""
    suite = Path(folder)
    return Path(os.environ.get(VARIABLE) or suite.parent / "tensorboard") / suite.name


@hookimpl
@reported_once
def fedbench_cell_started(manifest, folder):
    from tensorboard.compat.proto.event_pb2 import SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    suite, cell = named(folder)
    given = {name: text[:500] for name, text in parameters(manifest).items()}
    _files.pop(folder, None)
    begun = manifest.get("round", 0)  # a round that is computed once more takes the place of what there is of it
    _write(folder, begun + 1 if begun else 0, session_log=SessionLog(status=SessionLog.START))
    _write(folder, 0, summary=Summary(value=hparams_pb(given, trial_id=f"{suite.name}/{cell}").value))


@hookimpl
@reported_once
def fedbench_round_finished(manifest, round, rows, evaluation, folder):
    from tensorboard.compat.proto.summary_pb2 import Summary

    numbers = of_round(rows, evaluation)
    values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
    _write(folder, round, summary=Summary(value=values))


@hookimpl
@reported_once
def fedbench_cell_finished(manifest, folder):
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import metadata
    from tensorboard.plugins.hparams.api_pb2 import Status
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

    status = Status.Value("STATUS_SUCCESS" if manifest["status"] in WELL else "STATUS_FAILURE")
    data = HParamsPluginData(session_end_info=SessionEndInfo(status=status, end_time_secs=time.time()))
    about = metadata.create_summary_metadata(data)
    ended = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=about, tensor=metadata.NULL_TENSOR)
    _write(folder, 0, summary=Summary(value=[ended]))


@hookimpl
@reported_once
def fedbench_suite_finished(folder):
    write_atomically(logs(folder) / REPORT, report(folder).encode())


def _write(folder: str, step: int, **what: Any) -> None:
    """Append an event to the file of this process in the cell's folder; the first begins it with its version."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    suite, cell = named(folder)
    place = logs(str(suite)) / cell
    place.mkdir(parents=True, exist_ok=True)
    begins = folder not in _files
    if begins:  # TensorBoard reads files in the order of their names; a process that was killed may have had this pid
        _files[folder] = place / f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"
    with open(_files[folder], "ab") as opened:
        writer = RecordWriter(opened)
        if begins:
            writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        writer.write(Event(wall_time=time.time(), step=step, **what).SerializeToString())
        writer.flush()
