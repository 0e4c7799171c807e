"""Reading what coding agents left on disk. Start with harvester.py: the whole of it."""

from whet.sleep.harvest.harvester import harvest
from whet.sleep.harvest.report import Group, HarvestReport

__all__ = ["Group", "HarvestReport", "harvest"]
