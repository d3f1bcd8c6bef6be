"""Results on disk: a cell's manifest and tables, and everything under a folder as a list of results."""

from fedbench.results.columns import STATUSES
from fedbench.results.documents import refuse_links
from fedbench.results.files import read_manifest, read_rows, write_manifest
from fedbench.results.index import Entry, merge_index, prepare_folder, read_index
from fedbench.results.loading import Loaded, content_hash, examine, load
from fedbench.results.read import Results, load_results, read
from fedbench.results.result import Result
from fedbench.results.tables import RESULT_VERSION, write_rows

__all__ = [
    "RESULT_VERSION",
    "STATUSES",
    "Entry",
    "Loaded",
    "Result",
    "Results",
    "content_hash",
    "examine",
    "load",
    "load_results",
    "merge_index",
    "prepare_folder",
    "read",
    "read_index",
    "read_manifest",
    "read_rows",
    "refuse_links",
    "write_manifest",
    "write_rows",
]
