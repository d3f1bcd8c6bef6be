"""Data: where pixels come from and where they are kept once decoded. Nothing in this package imports torch."""

from fedbench.data.cache import NewArray, cached
from fedbench.data.sources import DataPart, DataSource, Package, data_dir, root_of
from fedbench.disk import cache_dir

__all__ = ["NewArray", "DataPart", "DataSource", "Package", "cache_dir", "cached", "data_dir", "root_of"]
